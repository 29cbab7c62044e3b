{{- define "autoscaler.fullname" -}}
{{- $name := .Values.nameOverride | default (printf "%s-%s" .Values.cloudProvider .Chart.Name) -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if eq $name .Release.Name }}{{ $name | trunc 63 | trimSuffix "-" -}}
{{- else }}{{ printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}{{ end -}}
{{- end }}
