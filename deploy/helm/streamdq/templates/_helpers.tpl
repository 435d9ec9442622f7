{{- define "streamdq.name" -}}
{{- printf "%s-%s" .root.Release.Name .component | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "streamdq.selector" -}}
app.kubernetes.io/name: streamdq
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "streamdq.labels" -}}
{{ include "streamdq.selector" . }}
app.kubernetes.io/version: {{ .root.Values.image.tag | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "streamdq.account" -}}
{{- default (ternary .Release.Name "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end }}

{{- define "streamdq.env" -}}
- name: STREAMDQ_URL
{{- if .Values.redis.existingSecret }}
  valueFrom:
    secretKeyRef:
      name: {{ .Values.redis.existingSecret }}
      key: {{ .Values.redis.urlKey }}
{{- else }}
  value: {{ required "redis.existingSecret or redis.url: where Redis is" .Values.redis.url | quote }}
{{- end }}
- name: STREAMDQ_NAMESPACE
  value: {{ .Values.namespace | quote }}
- name: STREAMDQ_GRACE_S
  value: {{ .Values.graceSeconds | quote }}
{{- range $name, $value := .Values.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A deployment. root, component, replicas, args, resources, port (name, number) or none, probes, volumes, mounts, recreate */}}
{{- define "streamdq.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "streamdq.name" . }}
  labels: {{- include "streamdq.labels" . | nindent 4 }}
spec:
  {{- if not .scaled }}
  replicas: {{ .replicas }}
  {{- end }}
  selector:
    matchLabels: {{- include "streamdq.selector" . | nindent 6 }}
  strategy:
    {{- if .recreate }}
    type: Recreate
    {{- else }}
    rollingUpdate: { maxUnavailable: 0, maxSurge: 1 }
    {{- end }}
  template:
    metadata:
      labels: {{- include "streamdq.labels" . | nindent 8 }}
      {{- if or .root.Values.podAnnotations .root.Values.metrics.annotations }}
      annotations:
        {{- if and .metrics .root.Values.metrics.annotations }}
        prometheus.io/scrape: "true"
        prometheus.io/port: {{ .root.Values.metrics.port | quote }}
        {{- end }}
        {{- with .root.Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "streamdq.account" .root }}
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: {{ add .root.Values.graceSeconds 15 }}
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65534
        runAsGroup: 65534
        fsGroup: 65534
        seccompProfile: { type: RuntimeDefault }
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "streamdq.selector" . | nindent 14 }}
      containers:
        - name: {{ .component }}
          image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag }}"
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: {{- toYaml .args | nindent 12 }}
          env: {{- include "streamdq.env" .root | nindent 12 }}
          ports:
            {{- if .metrics }}
            - { name: metrics, containerPort: {{ .root.Values.metrics.port }} }
            {{- end }}
            {{- if .health }}
            - { name: health, containerPort: {{ .root.Values.health.port }} }
            {{- end }}
            {{- if .http }}
            - { name: http, containerPort: 8080 }
            {{- end }}
          {{- if .http }}
          startupProbe:
            httpGet: { path: /health/alive, port: http }
            failureThreshold: 30
            periodSeconds: 2
          livenessProbe:
            httpGet: { path: /health/alive, port: http }
          readinessProbe:
            httpGet: { path: /health/ready, port: http }
          {{- else if .health }}
          livenessProbe:
            httpGet: { path: /health/alive, port: health }
            failureThreshold: 6
            initialDelaySeconds: 10
          readinessProbe:
            httpGet: { path: /health/ready, port: health }
          {{- else if .probed }}
          livenessProbe:
            tcpSocket: { port: metrics }
          {{- end }}
          resources: {{- toYaml .resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: { drop: [ALL] }
          volumeMounts:
            - { name: tmp, mountPath: /tmp }
            {{- if .tokens }}
            - { name: tokens, mountPath: /run/streamdq, readOnly: true }
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: {}
        {{- if .tokens }}
        - name: tokens
          secret: { secretName: {{ .tokens }} }
        {{- end }}
      {{- with .root.Values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .root.Values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}

{{- define "streamdq.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "streamdq.name" . }}
  labels: {{- include "streamdq.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "streamdq.selector" . | nindent 6 }}
{{- end }}

{{- define "streamdq.healthArgs" -}}
- --health-port
- {{ .Values.health.port | quote }}
- --health-host
- 0.0.0.0
{{- end }}

{{- define "streamdq.metricsArgs" -}}
- --metrics-port
- {{ .Values.metrics.port | quote }}
- --metrics-host
- 0.0.0.0
{{- end }}
