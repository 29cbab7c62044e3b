package connect

// CleaningFile tells, by the management cluster's name, that its deletion was begun: it managed no cluster then, and
// need not answer any more for the deletion to go on.
const CleaningFile = "clean.deleting"

// ReplacementFile remembers the replacement that is under way, for a run after a killed one: the Machine that was asked
// for does not exist any more then.
const ReplacementFile = "replace-machine.json"
