{{- define "csi.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "csi.driver" -}}
{{ .image.name }}:{{ .image.tag | default (printf "v%s" .version) }}
{{- end }}
