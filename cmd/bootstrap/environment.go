package main

// Variables of the environment that are not configuration.
const (
	endpointVariable = "HCLOUD_ENDPOINT"  // another address of the Hetzner API, as for the hcloud command
	labTokenVariable = "LAB_HCLOUD_TOKEN" // in the lab, in place of its own token: to rehearse a wrong one
	githubVariable   = "GITHUB_TOKEN"     // more requests an hour while providers are fetched
)

// tokenVariables are the variables of the environment that hold secrets.
func tokenVariables() []string {
	return []string{tokenVariable, labTokenVariable, githubVariable, passphraseVariable}
}

// Variables of the environment for backups. Secrets are taken from there, from
// a file or from a command, and never as an argument.
const (
	passphraseVariable = "BACKUP_PASSPHRASE"

	// As every S3 client calls them.
	accessKeyVariable = "AWS_ACCESS_KEY_ID"
	secretKeyVariable = "AWS_SECRET_ACCESS_KEY"
	sessionVariable   = "AWS_SESSION_TOKEN"
)
