package clustertest

// Silent takes messages and prints none.
func Silent(string, ...any) {}

// OwnedByCAPH is the label that CAPH puts on what it creates for the cluster k8s.
var OwnedByCAPH = map[string]string{"caph-cluster-k8s": "owned"}
