package cli

import (
	"context"
	_ "embed"
	"strconv"
	"strings"
	"text/template"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/session"
)

//go:embed backupcronjob.yaml.tmpl
var cronJobTemplate string

// runBackupCronJob prints a CronJob that lets the cluster snapshot its own etcd,
// with Talos's own program for that. It opens no connection.
func runBackupCronJob(_ context.Context, c *call, k session.Cluster, o backupOptions) error {
	cfg := k.Cfg
	if !backup.IsS3(cfg.BackupTo) {
		return usage.Errorf("a CronJob can only reach a store: set BACKUP_TO=s3://bucket/prefix and BACKUP_S3_ENDPOINT")
	}
	if cfg.BackupS3Region == "" {
		return usage.Errorf("BACKUP_S3_REGION is not set: the program in the CronJob signs its requests for a region " +
			"(Hetzner's is the location, nbg1)")
	}
	recipient, err := cronJobRecipient(cfg.BackupRecipients)
	if err != nil {
		return err
	}
	schedule, err := cronSchedule(o.Every)
	if err != nil {
		return err
	}
	bucket, prefix, _ := strings.Cut(strings.TrimPrefix(cfg.BackupTo, "s3://"), "/")
	endpoint := cfg.BackupS3Endpoint
	if !strings.Contains(endpoint, "://") {
		endpoint = "https://" + endpoint
	}
	return template.Must(template.New("cronjob").Parse(cronJobTemplate)).Execute(c.stdout, map[string]string{
		"Cluster": cfg.ClusterName, "Schedule": schedule, "Recipient": recipient, "Endpoint": endpoint,
		"Region": cfg.BackupS3Region,
		"Bucket": bucket, "Prefix": strings.Trim(strings.Trim(prefix, "/")+"/etcd/"+cfg.ClusterName, "/"),
	})
}

// cronJobRecipient is the first of the public keys that the program takes.
func cronJobRecipient(text string) (string, error) {
	recipients, err := keys.ParseRecipients(text)
	if err != nil {
		return "", usage.Errorf("BACKUP_RECIPIENTS: %w", err)
	}
	for _, r := range recipients {
		if x, ok := r.(*age.X25519Recipient); ok {
			return x.String(), nil
		}
	}
	return "", usage.Errorf("BACKUP_RECIPIENTS has no key that begins with age1 and is not post-quantum: the program in " +
		"the CronJob encrypts for one such")
}

// cronSchedule is a period as cron has it, which knows only those that divide
// an hour or a day. 0 is every six hours.
func cronSchedule(every time.Duration) (string, error) {
	switch minutes := int(every / time.Minute); {
	case every == 0:
		return "0 */6 * * *", nil
	case every%time.Minute != 0 || minutes <= 0:
	case minutes < 60 && 60%minutes == 0:
		return "*/" + strconv.Itoa(minutes) + " * * * *", nil
	case minutes == 24*60:
		return "0 0 * * *", nil
	case minutes%60 == 0 && 24%(minutes/60) == 0:
		return "0 */" + strconv.Itoa(minutes/60) + " * * *", nil
	}
	return "", usage.Errorf("--every %s is no period for a CronJob: take one that divides an hour or a day, 30m or 6h say",
		every)
}

func newBackupCronJobCommand(c *call) *cobra.Command {
	var own backupOptions
	cmd := c.command("cronjob", "", "print a CronJob that stores etcd snapshots of the cluster in the S3 store",
		own.action(runBackupCronJob))
	addToFlag(cmd, &own.To)
	addEveryFlag(cmd, &own.Every, "a snapshot every `6h`")
	return cmd
}
