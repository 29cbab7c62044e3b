package clustertest

// Silent takes messages and prints none.
func Silent(string, ...any) {}

// ReservedBy is the label of a reservation that names its state folder.
const ReservedBy = "slipway-reserved-by"

// OwnedByCAPH is the label that CAPH puts on what it creates for the cluster k8s.
var OwnedByCAPH = map[string]string{"caph-cluster-k8s": "owned"}
