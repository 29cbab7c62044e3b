package platform

// GitAccess is what a Git repository, or one of a registry, is read with: a token, or an SSH key with the public keys
// of the repository's host. The zero value: nothing, as for a public repository, or where it was not read.
type GitAccess struct {
	User       string
	Token      Secret
	Key        Secret // private, PEM
	KnownHosts string
}

// Empty says that there is neither a token nor a key.
func (g GitAccess) Empty() bool { return g.Token.Reveal() == "" && g.Key.Reveal() == "" }
