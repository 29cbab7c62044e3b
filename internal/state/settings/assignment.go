package settings

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// Assignment is one KEY=VALUE.
type Assignment struct {
	Variable config.Variable
	Value    string
}

var variableName = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)

// ParseAssignment reads KEY=VALUE. A value is never repeated in an error: it
// may be a token in the wrong place.
func ParseAssignment(word string) (Assignment, error) {
	key, value, _ := strings.Cut(word, "=")
	if key == TokenVariable {
		return Assignment{}, fmt.Errorf("%s is not taken as an argument, which every process on this machine can read: "+
			"export it, or name hcloudTokenFile or hcloudTokenCommand in bootstrap.yaml", TokenVariable)
	}
	variables := config.Variables()
	if i := slices.IndexFunc(variables, func(v config.Variable) bool { return v.Name == key }); i >= 0 {
		return Assignment{Variable: variables[i], Value: value}, nil
	}
	names := make([]string, len(variables))
	for i, v := range variables {
		names[i] = v.Name
	}
	if key == "" {
		return Assignment{}, fmt.Errorf("%q is not KEY=VALUE: the variable's name is missing", word)
	}
	if !variableName.MatchString(key) {
		return Assignment{}, fmt.Errorf("%q is not KEY=VALUE with a variable's name in capitals%s",
			key+"=…", usage.DidYouMean("", strings.ToUpper(strings.ReplaceAll(key, "-", "_")), names))
	}
	if hint := usage.DidYouMean("", key, names); hint != "" {
		return Assignment{}, fmt.Errorf("there is no variable %s%s", key, hint)
	}
	return Assignment{}, fmt.Errorf("there is no variable %s: bootstrap help variables lists them all", key)
}

// place is the assignment as it was written, but for a secret key of age in a
// place for public ones and for the password in an address.
func (a Assignment) place() string {
	if strings.Contains(a.Value, "AGE-SECRET-KEY-") {
		return a.Variable.Name + "=…"
	}
	return a.Variable.Name + "=" + kube.WithoutCredentials(a.Value)
}

// Assign is an assignment that the command itself makes, to a variable that is known to exist.
func Assign(name, value string) Assignment { return Assignment{Variable(name), value} }

// Shown is the assignment as it was given; of one with a secret in it, only the variable's name, with "…" where the
// operator types it again.
func (a Assignment) Shown() string {
	if given := a.Variable.Name + "=" + a.Value; a.place() == given {
		return given
	}
	return a.Variable.Name + "=…"
}
