package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile writes b to a 0600 file in 0700 folders, replacing the old file in one step, so that neither a
// reader nor a crash ever meets half of it.
func WriteFile(path string, b []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*") // 0600 by contract
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // does not exist after the rename
	if _, err := tmp.Write(b); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// Write writes the pair to dir/name.crt and dir/name.key and returns both paths.
func (p Pair) Write(dir, name string) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	// The key first: a certificate never exists without its key.
	if err := WriteFile(keyFile, p.Key); err != nil {
		return "", "", err
	}
	return certFile, keyFile, WriteFile(certFile, p.Cert)
}

// EnsureCA reads the authority dir/name.{crt,key}, and creates it if it does not exist.
func EnsureCA(dir, name, commonName string) (*CA, error) {
	cert, err := os.ReadFile(filepath.Join(dir, name+".crt"))
	if errors.Is(err, fs.ErrNotExist) {
		ca, err := NewCA(commonName)
		if err != nil {
			return nil, err
		}
		if _, _, err := ca.pair.Write(dir, name); err != nil {
			return nil, fmt.Errorf("keep authority %q: %w", commonName, err)
		}
		return ca, nil
	}
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, err
	}
	return ParseCA(Pair{Cert: cert, Key: key})
}

// EnsureServiceAccountKey reads the key in the file path, and creates it if it does not exist.
func EnsureServiceAccountKey(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	if b, err = NewServiceAccountKey(); err != nil {
		return nil, err
	}
	return b, WriteFile(path, b)
}
