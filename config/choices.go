package config

import (
	"slices"
	"strconv"
	"strings"
)

// Type is what a variable's value is, as JSON Schema and completion need to know: "string", "integer" or "duration".
func (v Variable) Type() string {
	switch v.Pointer(&Config{}).(type) {
	case *int:
		return "integer"
	case *Duration:
		return "duration"
	default:
		return "string"
	}
}

// Choices are the only values that a variable can have, or the words of a list; nil: there are too many to list, or
// only the cloud knows.
func (v Variable) Choices() []string {
	switch v.Name {
	case "LOCATION":
		return locations
	case "SPREAD":
		return []string{SpreadHost, SpreadLocation}
	case "MANAGEMENT":
		return managements
	case "GITEA":
		return giteaChoices
	case "GITOPS":
		return gitOpsChoices
	case "LAB_PROGRAMS":
		return labProgramSources
	case "VERSIONS":
		return Shipped().SetNames()
	case "LOAD_BALANCER_TYPE":
		return loadBalancerTypes
	case "CONTROL_PLANE_REPLICAS":
		var odd []string
		for n := 1; n <= maxReplicas; n += 2 {
			odd = append(odd, strconv.Itoa(n))
		}
		return odd
	default:
		return nil
	}
}

// Pattern is a regular expression (of JSON Schema's dialect) that holds of every value of the variable; empty: none is
// known.
func (v Variable) Pattern() string {
	switch {
	case v.Type() == "duration":
		return `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	case v.Name == "CLUSTER_NAME":
		return dnsLabel.String()
	case v.Name == "SERVER_TYPE", v.Name == "WORKER_SERVER_TYPE":
		return listOf(hcloudName.String())
	case v.Name == "LOCATION":
		return listOf(strings.Join(locations, "|"))
	case strings.HasSuffix(v.Name, "_CIDR"):
		return `^[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}$`
	case v.Default != "" && strings.HasSuffix(v.Name, "_VERSION"):
		prefix := ""
		if v.Default[0] == 'v' {
			prefix = "v"
		}
		return `^` + prefix + `[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`
	default:
		return ""
	}
}

// Lists reports whether the variable has several values, with commas between them. In bootstrap.yaml they can be a
// list.
func (v Variable) Lists() bool {
	return slices.Contains([]string{"LOCATION", "SERVER_TYPE", "WORKER_SERVER_TYPE", "IMAGE_ARCHITECTURES", "FIREWALL_ALLOW",
		"GITEA_TOKEN_SCOPES", "STATE_RECIPIENTS", "BACKUP_RECIPIENTS"}, v.Name)
}

// ListsInPool is Lists for a key of a worker pool.
func ListsInPool(key string) bool { return key == "serverType" || key == "location" }
