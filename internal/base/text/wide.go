package text

// Wide is from how many columns on a table of servers has all that is known of them.
const Wide = 100
