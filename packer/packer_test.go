// Package packer_test holds the Packer template against what the rest of the project expects of it.
package packer_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/slipway-k8s/slipway/config"
)

const template = "hcloud_talosimage.pkr.hcl"

func TestTemplateParses(t *testing.T) {
	body := parse(t)
	blocks := map[string]int{}
	for _, b := range body.Blocks {
		blocks[b.Type]++
	}
	for _, want := range []string{"packer", "variable", "locals", "source", "build"} {
		if blocks[want] == 0 {
			t.Errorf("no block %s", want)
		}
	}
}

// TestVariablesAreDeclared finds a reference to a variable, a local or a source that does not exist, which HCL's parser
// alone does not.
func TestVariablesAreDeclared(t *testing.T) {
	body := parse(t)
	known := map[string]bool{}
	for _, b := range body.Blocks {
		switch b.Type {
		case "variable":
			known["var."+b.Labels[0]] = true
		case "locals":
			for name := range b.Body.Attributes {
				known["local."+name] = true
			}
		}
	}
	references := 0
	_ = hclsyntax.VisitAll(body, func(n hclsyntax.Node) hcl.Diagnostics {
		e, ok := n.(*hclsyntax.ScopeTraversalExpr)
		if !ok {
			return nil
		}
		if e.Traversal.RootName() == "string" { // a variable's type
			return nil
		}
		references++
		if len(e.Traversal) < 2 {
			t.Errorf("%s: %s refers to nothing", e.Range(), e.Traversal.RootName())
			return nil
		}
		name := e.Traversal.RootName() + "." + e.Traversal[1].(hcl.TraverseAttr).Name
		if !known[name] {
			t.Errorf("%s: %s is not declared", e.Range(), name)
		}
		return nil
	})
	if references < 10 {
		t.Errorf("met only %d references", references)
	}
}

// TestLabelsAreWhatTheBootstrapLooksFor: CAPH finds the snapshot by caph-image-name, people by os=talos.
func TestLabelsAreWhatTheBootstrapLooksFor(t *testing.T) {
	data := read(t)
	for _, want := range []string{
		`"caph-image-name" = local.image_name`, `= "talos"`,
		`default     = "` + config.Defaults().TalosVersion + `"`,
		"ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515", "factory.talos.dev",
	} {
		if !strings.Contains(data, want) {
			t.Errorf("the template does not say %s", want)
		}
	}
}

// TestTheScriptsInterpreterStarts as Linux does with a script: what follows the interpreter in its first line is one argument.
func TestTheScriptsInterpreterStarts(t *testing.T) {
	if _, err := os.Stat("/bin/bash"); err != nil {
		t.Skip(err)
	}
	shebang, met := "", 0
	_ = hclsyntax.VisitAll(parse(t), func(n hclsyntax.Node) hcl.Diagnostics {
		if a, ok := n.(*hclsyntax.Attribute); ok && a.Name == "inline_shebang" {
			value, diagnostics := a.Expr.Value(nil)
			if diagnostics.HasErrors() {
				t.Fatal(diagnostics)
			}
			shebang, met = value.AsString(), met+1
		}
		return nil
	})
	if met != 1 {
		t.Fatalf("met inline_shebang %d times", met)
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(strings.SplitN(shebang, " ", 2), script)
	if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Errorf("%q: %v: %s", args, err, out)
	}
}

func parse(t *testing.T) *hclsyntax.Body {
	t.Helper()
	file, diagnostics := hclsyntax.ParseConfig([]byte(read(t)), template, hcl.InitialPos)
	if diagnostics.HasErrors() {
		t.Fatal(diagnostics)
	}
	return file.Body.(*hclsyntax.Body)
}

func read(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(template)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
