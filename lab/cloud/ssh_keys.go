package cloud

import (
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const kindSSHKey = "ssh_key"

type sshKey struct {
	meta
	Public      string `json:"public"`
	Fingerprint string `json:"fingerprint"`
}

func (c *Cloud) sshKeys() resource[*sshKey] {
	return resource[*sshKey]{
		kind: kindSSHKey, path: "ssh_keys", all: c.state.SSHKeys,
		view:    func(one *sshKey) any { return one.view() },
		filters: map[string]func(*sshKey) string{"fingerprint": func(one *sshKey) string { return one.Fingerprint }},
		update:  noUpdate[*sshKey],
		remove: func(q *call, one *sshKey) (any, error) {
			delete(q.state.SSHKeys, one.ID)
			return nil, nil
		},
	}
}

func (k *sshKey) view() schema.SSHKey {
	return schema.SSHKey{
		ID: k.ID, Name: k.Name, Fingerprint: k.Fingerprint, PublicKey: k.Public,
		Labels: k.labels(), Created: k.Created,
	}
}

func (c *Cloud) createSSHKey(q *call, wanted schema.SSHKeyCreateRequest) (any, error) {
	print, err := fingerprint(wanted.PublicKey)
	if err != nil {
		return nil, err
	}
	for _, other := range c.state.SSHKeys {
		if other.Fingerprint == print {
			return nil, refuse("uniqueness_error", "SSH key with the same fingerprint already exists")
		}
	}
	about, err := c.sshKeys().begin(q, wanted.Name, wanted.Labels)
	if err != nil {
		return nil, err
	}
	made := &sshKey{meta: about, Public: wanted.PublicKey, Fingerprint: print}
	c.state.SSHKeys[made.ID] = made
	return map[string]any{"ssh_key": made.view()}, nil
}

// fingerprint is the MD5 of the key as OpenSSH writes it ("b7:2f:…"), which the API identifies keys by.
func fingerprint(public string) (string, error) {
	fields := strings.Fields(public)
	if len(fields) < 2 {
		return "", invalid("public_key", "is not a public key in OpenSSH form")
	}
	blob, err := base64.StdEncoding.DecodeString(fields[1])
	if err != nil || len(blob) < 20 {
		return "", invalid("public_key", "is not a public key in OpenSSH form")
	}
	sum := md5.Sum(blob)
	pairs := make([]string, len(sum))
	for i, b := range sum {
		pairs[i] = fmt.Sprintf("%02x", b)
	}
	return strings.Join(pairs, ":"), nil
}
