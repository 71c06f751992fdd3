package rebuild

import "github.com/levee-cache/levee/internal/link"

// trusted is what production says of something that so many ticks have passed over: one tick leaves open whether
// it is older than LocalTTL. It may be from before the last gap, and changes may be heard now or not.
var trusted = func() (t [settled + 1][2][2]struct{ some, all bool }) {
	const now = link.Instant(100 * unheardFor)
	ages := [settled + 1][2]link.Instant{{0, link.Instant(unheardFor) - 1}, {link.Instant(unheardFor) - 1, link.Instant(unheardFor)}, {link.Instant(unheardFor), 2 * link.Instant(unheardFor)}}
	for age, ends := range ages {
		for old := range link.Instant(2) {
			for heard := range link.Instant(2) {
				at := &t[age][old][heard]
				at.all = true
				for _, ago := range ends {
					since := now - ago
					yes := believes(link.Between(since+old, now+heard), since, since.Add(unheardFor), now)
					at.some, at.all = at.some || yes, at.all && yes
				}
			}
		}
	}
	return t
}()

// trusts tells whether the node may trust what it asked for so many ticks ago, and whether it surely does. Who hears
// may be late to know it, and who does not may not know that yet.
func (s *step) trusts(h *host, age, old u8) (may, surely bool) {
	t := &trusted[age][old]
	may, surely = t[0].some, t[0].all
	if s.messages && h.stream < knows {
		may, surely = may || t[1].some, surely && t[1].all
	}
	return may, surely
}
