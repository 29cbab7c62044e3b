package releases

import (
	_ "embed"
	"io"
	"regexp"
	"text/template"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/internal/base/usage"
)

//go:embed cronjob.yaml.tmpl
var cronJobTemplate string

// CronJob is what the manifest of a CronJob that recovers HelmReleases depends on.
type CronJob struct {
	Image     string // with the program as its entry point
	Schedule  string // as cron has it
	RunIn     string // the namespace that it runs in
	Namespace string // of the HelmReleases; empty: all
	Threshold time.Duration
}

var image = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]*$`)

// Write writes the manifest: the CronJob with a ServiceAccount of its own that may do what Recover does.
func (j CronJob) Write(w io.Writer) error {
	if !image.MatchString(j.Image) {
		return usage.Errorf("--image %q is no image: write the one that has the command, as registry/name:version", j.Image)
	}
	for flag, namespace := range map[string]string{"--run-in": j.RunIn, "--namespace": j.Namespace} {
		if problems := validation.IsDNS1123Label(namespace); namespace != "" && len(problems) > 0 {
			return usage.Errorf("%s %q is no name of a namespace: %s", flag, namespace, problems[0])
		}
	}
	return template.Must(template.New("cronjob").Parse(cronJobTemplate)).Execute(w, j)
}
