package rebuild

// The model is one key, one server, two or three nodes and a database whose value is the number
// of times it was written. model_walk_test.go walks every order in which things can happen.
//
// Time has no length in it. A window, a lease or a back-off may end at any moment, by an action of
// its own; starts of leases are ranks: only their order counts. What is promised "at the latest
// after LocalTTL" is counted in ticks: what began before two of them is surely over, and what is
// bounded by RedisTimeout lets at most one pass (see timely). With messages, a node that hears of
// them believes its copies without end, so that it is they that count; a DEL by somebody else, of
// which no message tells, has scopes of its own.
//
// Not in it: not-found entries, grace, WaitTimeout, and nodes without Redis, whose decisions have tests
// of their own.

// u8 is every field's type: a world is compared and hashed as a run of bytes.
type u8 = uint8

const (
	maxHosts    = 3
	maxFlying   = 2 // reads under way on one node
	maxJobs     = 2 // loads under way on one node
	maxUnsure   = 2 // tokens to give back
	maxCommands = 5 // in the network
	maxUnread   = 2 // messages on their way to one node
)

// world is a state of the model.
type world struct {
	db    u8   // how often the database was written
	redis cell // what stands under the key

	// The value that the last confirmed delete or set followed, and the last confirmed expire: by now, a tick ago,
	// and two ticks ago. What is older than that is stale, or not to be fresh.
	gone, soft [3]u8

	lag    u8 // a replica of the database may still show the value before the last write
	failed u8 // how many loads have failed
	left   budgets

	hosts    [maxHosts]host
	commands [maxCommands]command
}

// budgets are how often each kind of trouble may still happen.
type budgets struct {
	changes, faults, foreign, lapses, crashes, failures, windows, cuts, refuse, unstored, refreshes, gets u8
}

// host is a node.
type host struct {
	copy       localCopy
	remembers  u8 // the failure of its last load
	gone, soft u8 // the latest change that it has confirmed itself, or has had the message of
	flying     [maxFlying]reading
	jobs       [maxJobs]job
	joined     u8 // the job that newcomers join, counted from one
	change     change
	unsure     [maxUnsure]unsure
	stream     u8
	unread     [maxUnread]notice
}

// localCopy is a node's Copy: the windows as in a cell.
type localCopy struct {
	has, value, version, writer, row u8
	fresh, stale, ifError            u8
	age                              u8 // in ticks, of what its belief counts from
	old                              u8 // from before the epoch
	loaded                           u8 // kept by a load or a set of this node
}

// reading is a flight.
type reading struct {
	phase, background, refresh u8
	void, turn                 u8 // its ticket; a refresh's is a load's
	shared                     u8 // newcomers join it
	gone, soft                 u8 // of its callers: what they must not be given
	bound, boundSoft           u8 // the same, for what other nodes have changed
	held                       localCopy
	sent, old                  u8 // in ticks, of what was asked last; and whether that was before the epoch
	token, bar                 u8
	holder, since              u8 // the lease that it waits for
	woken, excused             u8 // nobody has to wake it
	job                        u8 // that it waits for, counted from one
	twice                      u8 // the client has sent the command again
	answer                     answer
}

// phases of a reading
const (
	flyGet    u8 = iota + 1 // the whole entry was asked for
	flyHeader               // only its header
	flyTry                  // acquire
	flySleep                // until somebody else's lease ends
	flyAsk                  // acquire in mode wait
	flyAwait                // a load of this node
)

// job is a load.
type job struct {
	phase, background, refresh u8
	token, start               u8 // no token: without a lease
	value, row                 u8
	void, turn                 u8 // its ticket
	began, beganOld            u8 // in ticks
	sent, sentOld              u8
	renewed                    u8 // ticks since its lease was last confirmed
	revoked                    u8 // by whatever ended its lease while it ran
	twice                      u8
	answer                     answer
}

// phases of a job
const (
	jobRuns u8 = iota + 1
	jobHas     // has read the database
	jobSends
	jobPasses // after a commit that the server refused
	jobFails
)

// change is a Delete, Expire or Set.
type change struct {
	phase, kind   u8
	value, row    u8
	token, start  u8
	void, turn    u8
	sent, sentOld u8
	ran, twice    u8 // its script has run
	answer        answer
}

// phases of a change
const (
	changeAsks  u8 = iota + 1 // the script that invalidates
	changeTells               // the message
	changeCommits
)

// kinds of changes
const (
	deleting u8 = iota + 1
	expiring
	setting
)

// unsure is a token to give back: now, and once more when Redis will no longer grant it.
type unsure struct{ token, except, stage u8 }

const (
	giveNow u8 = iota + 1
	giveWaits
	giveLast
)

// notice is a message on its way.
type notice struct{ kind, value u8 }

// how a node hears of messages
const (
	hears  u8 = iota
	deaf      // and does not know yet
	deafID    // nor does it now, with the last id at hand
	knows     // that it is deaf
	hasID     // it has taken the last id, and has not raised its epoch yet
)

// answer is what came back for a command: a result, an error, or nothing yet.
type answer struct {
	came   u8
	status u8
	cell   cell
}

const (
	fine u8 = iota + 1
	silence
	noMemory
)
