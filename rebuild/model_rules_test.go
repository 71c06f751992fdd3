package rebuild

// rules of the nodes that a mutant takes out, as guards are of the scripts.
type rules uint64

const (
	forgetAfter       rules = 1 << iota // a node forgets after the script, not before it is sent
	forgetAlways                        // also after an error
	forgetFlights                       // newcomers do not join a flight from before
	forgetLoads                         // nor a load
	voiding                             // what is under way is kept nowhere
	tickets                             // a read keeps by its ticket only
	loadsVoid                           // what a load brings makes reads under way void
	messageAfter                        // the message goes out after the script
	messageVoids                        // a message does what Delete does on its own node
	epoch                               // a broken chain raises the epoch
	idFirst                             // the last id is taken before that
	oldCopies                           // copies from before the epoch are not believed
	oldReads                            // what reads from before it bring is not
	oldLoads                            // nor loads
	beliefFromStart                     // belief counts from the load's start, not from its end
	verifyIdentity                      // a copy is verified by its identity
	verifyWindows                       // and takes the header's windows
	twoSteps                            // a set is a seize, and then a commit
	secondRelease                       // a token in doubt is given back again when Redis grants it no longer
	refusedGivesBack                    // a refused commit gives its token back
	joining                             // a load that runs on this node is joined
	memory                              // a node remembers failures
	lostCloses                          // a lost lease closes its load to newcomers
	besideCloses                        // a load without a lease is closed to newcomers LocalTTL after its start
	polling                             // who waits polls
	refreshBar                          // a refresh is answered by nothing that began before
	setTicket                           // a set keeps by its ticket only
	readFromSending                     // what a read brings is believed from its sending
	commitFromSending                   // and what a commit confirms from that
	unknownFate                         // an acquire of unknown fate is given back
	passing1                            // what the server refuses to store is passed
	twiceDeletes                        // a set whose seize was sent twice is not committed
)
