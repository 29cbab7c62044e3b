package settings

// Variables of the environment that are not configuration. Which of them hold secrets, package child knows.
const (
	EndpointVariable = "HCLOUD_ENDPOINT"  // another address of the Hetzner API, as for the hcloud command
	LabTokenVariable = "LAB_HCLOUD_TOKEN" // in the lab, in place of its own token: to rehearse a wrong one
	GitTokenVariable = "GIT_TOKEN"        // reads the Git repository that Flux applies
	GithubVariable   = "GITHUB_TOKEN"     // more requests an hour while providers are fetched
)

// StateIdentityVariable holds a secret key that opens the state, in place of a file, for machines that keep nothing.
const StateIdentityVariable = "STATE_IDENTITY"

// Variables of the environment for backups. Secrets are taken from there, from
// a file or from a command, and never as an argument.
const (
	PassphraseVariable = "BACKUP_PASSPHRASE"
	// AuthenticationKeyVariable holds the key that authenticates the backups of one cluster, in place of a file.
	AuthenticationKeyVariable = "BACKUP_AUTHENTICATION_KEY"

	// As every S3 client calls them.
	AccessKeyVariable = "AWS_ACCESS_KEY_ID"
	SecretKeyVariable = "AWS_SECRET_ACCESS_KEY"
	SessionVariable   = "AWS_SESSION_TOKEN"
)
