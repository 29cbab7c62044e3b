package config

// CCMSecretName is the Secret in kube-system with the token and the network that hcloud-ccm reads.
const CCMSecretName = "hcloud"
