{{- define "talos-ccm.name" -}}
{{ .Values.nameOverride | default .Chart.Name }}
{{- end }}

{{- define "talos-ccm.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if contains (include "talos-ccm.name" .) .Release.Name -}}
{{ .Release.Name }}
{{- else -}}
{{ .Release.Name }}-{{ include "talos-ccm.name" . }}
{{- end -}}
{{- end }}

{{- define "talos-ccm.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "talos-ccm.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end }}

{{- define "talos-ccm.selector" -}}
app.kubernetes.io/name: {{ include "talos-ccm.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "talos-ccm.labels" -}}
{{ include "talos-ccm.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
