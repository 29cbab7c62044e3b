package clustertest

// ReservedBy is the label of a reservation that names its state folder.
const ReservedBy = "slipway-reserved-by"
