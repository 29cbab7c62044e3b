{{/* The image reference of an image value. */}}
{{- define "cilium.image" -}}
{{- if .override }}{{ .override }}{{ else }}{{ .repository }}{{ .suffix | default "" }}:{{ .tag }}{{ end -}}
{{- end }}

{{/* Where to find the API server while there is no kube-proxy. */}}
{{- define "cilium.apiserver" -}}
{{- if .Values.k8sServiceHost -}}
- name: KUBERNETES_SERVICE_HOST
  value: {{ .Values.k8sServiceHost | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ .Values.k8sServicePort | default 6443 | quote }}
{{- end -}}
{{- end }}
