package api

// Versions are the releases of the original whose behaviour the stand-in has, oldest first. Their CRDs have the same
// schemas. Newer releases, from v1.1.0 on, read Cluster API's objects as v1beta2, which no Cluster API that Talos's
// providers support serves.
func Versions() []string { return []string{"v1.0.7", "v1.0.12"} }
