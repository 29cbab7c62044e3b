{{- define "hccm.name" -}}
{{ .Values.nameOverride | default .Chart.Name }}
{{- end }}

{{- define "hccm.selector" -}}
app.kubernetes.io/name: {{ include "hccm.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
