package lab

import (
	"slices"
	"strings"
	"testing"
)

// A name of the hosts file resolves, and for any other no name server is asked.
func TestLookupHostsFile(t *testing.T) {
	if found, err := lookupHostsFile(t.Context(), "localhost"); err != nil || !slices.Contains(found, "127.0.0.1") {
		t.Errorf("localhost is %v, %v", found, err)
	}
	if found, err := lookupHostsFile(t.Context(), "api.example.com"); err == nil ||
		!strings.Contains(err.Error(), "only the hosts file counts") {
		t.Errorf("api.example.com is %v, %v", found, err)
	}
}
