package api

// Versions are the releases of the original whose behaviour the stand-in has, oldest first. Those of v1.0 have CRDs of
// the same schemas. From v1.1.0 on they read Cluster API's objects as v1beta2, which Cluster API serves from v1.11 on.
func Versions() []string { return []string{"v1.0.7", "v1.0.12", "v1.1.8"} }
