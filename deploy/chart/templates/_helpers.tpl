{{/* The image, as the log names it. */}}
{{- define "restow.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* Labels of every object. `restow uninstall` and `restow doctor` go by part-of, the policy restow-guard-brokers by the number of brokers. */}}
{{- define "restow.labels" -}}
app.kubernetes.io/part-of: restow
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- if .Values.nats.enabled }}
restow.dev/brokers: {{ .Values.nats.replicas | quote }}
{{- end }}
{{- end }}

{{/* The services: name of their values → name of everything else. */}}
{{- define "restow.services" -}}
clusterWatcher: cluster-watcher
schedulerSession: scheduler-session
reservationCache: reservation-cache
descheduler: descheduler
garbageCollector: garbage-collector
{{- end }}

{{/* Users of the broker, as its permissions name them, separated by blanks. */}}
{{- define "restow.users" -}}
{{- range regexFindAll "(?m)^ +user: \\w+" (.Files.Get "files/nats/permissions.conf") -1 }} {{ . | trim | trimPrefix "user: " }}{{ end }}
{{- end }}

{{- define "restow.passwords" -}}
{{ .Values.nats.existingSecret | default "restow-nats" }}
{{- end }}

{{/* What is in that Secret, as YAML: what it has, and what it lacks made at random, unless it is somebody's own. It is the same for whoever asks in one rendering. */}}
{{- define "restow.passwordsData" -}}
{{- if not (hasKey .Values "restowPasswords") }}
{{- $data := (lookup "v1" "Secret" .Release.Namespace (include "restow.passwords" . | trim)).data | default dict }}
{{- if not .Values.nats.existingSecret }}
{{- $there := $data }}
{{- $data = dict }}
{{- /* The broker reads each as a value of its configuration: letters and digits, beginning with a letter. */}}
{{- range append (include "restow.users" . | trim | splitList " ") "route" }}{{ $_ := set $data . (get $there . | default (printf "p%s" (randAlphaNum 47) | b64enc)) }}{{ end }}
{{- end }}
{{- $_ := set .Values "restowPasswords" $data }}
{{- end }}
{{- toYaml .Values.restowPasswords }}
{{- end }}

{{/* The same of the certificate that the chart makes for brokers and services: they are clients, too, of each other and of the brokers. */}}
{{- define "restow.certificateData" -}}
{{- if not (hasKey .Values "restowCertificate") }}
{{- $there := (lookup "v1" "Secret" .Release.Namespace "restow-nats-tls").data | default dict }}
{{- $data := dict }}
{{- if get $there "tls.crt" }}
{{- range list "ca.crt" "tls.crt" "tls.key" }}{{ $_ := set $data . (get $there .) }}{{ end }}
{{- else }}
{{- $names := list }}
{{- range include "restow.brokerNames" . | trim | splitList " " }}{{ $names = append $names . }}{{ end }}
{{- $authority := genCA "restow-nats-ca" 3650 }}
{{- $pair := genSignedCert "restow-nats" nil $names 3650 $authority }}
{{- $data = dict "ca.crt" ($authority.Cert | b64enc) "tls.crt" ($pair.Cert | b64enc) "tls.key" ($pair.Key | b64enc) }}
{{- end }}
{{- $_ := set .Values "restowCertificate" $data }}
{{- end }}
{{- toYaml .Values.restowCertificate }}
{{- end }}

{{/* What a certificate of brokers is for, separated by blanks. */}}
{{- define "restow.brokerNames" -}}
restow-nats restow-nats.{{ .Release.Namespace }}.svc *.restow-nats.{{ .Release.Namespace }}.svc
{{- end }}

{{/* Annotations of pods that read passwords when they start: with others they are started anew, also by `helm rollback`. None where the Secret is not seen. */}}
{{- define "restow.passwordsSum" -}}
{{- $data := include "restow.passwordsData" . }}
{{- if ne $data "{}" }}
checksum/passwords: {{ sha256sum $data }}
{{- end }}
{{- end }}

{{/* Host names of the brokers, as their certificate has them, separated by blanks. */}}
{{- define "restow.brokers" -}}
{{- range $i := until (int .Values.nats.replicas) }} restow-nats-{{ $i }}.restow-nats.{{ $.Release.Namespace }}.svc{{ end }}
{{- end }}

{{/* Bytes that a broker's store may have: 85 % of its volume. The rest is for what nats-server does not count, such as files with holes that are still to be
     compacted: where the disk itself is full, it stores nothing more until it is restarted. RestowBrokerDiskFull fires before, at 75 %. */}}
{{- define "restow.storeBytes" -}}
{{- $size := .Values.nats.storage.size }}
{{- $number := 1 }}
{{- $unit := 1 }}
{{- if kindIs "string" $size }}
{{- $digits := regexFind "^[0-9.]+" $size }}
{{- $number = float64 $digits }}
{{- $unit = get (dict "" 1 "m" 0.001 "k" 1e3 "Ki" 1024 "M" 1e6 "Mi" 1048576 "G" 1e9 "Gi" 1073741824 "T" 1e12 "Ti" 1099511627776 "P" 1e15 "Pi" 1125899906842624) (trimPrefix $digits $size) }}
{{- else }}
{{- $number = float64 $size }}
{{- end }}
{{- mulf $number $unit 0.85 | int64 }}
{{- end }}

{{- define "restow.brokerTLS" -}}
{{ .Values.nats.tls.existingSecret | default "restow-nats-tls" }}
{{- end }}

{{/* How a user of the broker reaches it. root; user. */}}
{{- define "restow.natsEnv" -}}
{{- $nats := .root.Values.nats }}
- {name: RESTOW_CLUSTER, value: {{ .root.Values.cluster | quote }}}
{{- if $nats.enabled }}
{{- $urls := list }}
{{- range include "restow.brokers" .root | trim | splitList " " }}{{ $urls = append $urls (printf "nats://%s:4222" .) }}{{ end }}
- {name: RESTOW_NATS_URL, value: {{ join "," $urls | quote }}}
{{- else }}
- {name: RESTOW_NATS_URL, value: {{ $nats.url | quote }}}
{{- end }}
{{- if and (gt (int $nats.replicas) 1) (ne .user "cli") }}
- {name: RESTOW_NATS_REPLICAS, value: {{ $nats.replicas | quote }}}
{{- end }}
- {name: RESTOW_NATS_USER, value: {{ .user }}}
{{- if $nats.keys }}
- {name: RESTOW_NATS_CREDENTIALS, value: /nats/credentials}
{{- else }}
- name: RESTOW_NATS_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ include "restow.passwords" .root }}, key: {{ .user }}}
{{- end }}
{{- if $nats.tls.enabled }}
- {name: RESTOW_NATS_CA, value: /tls/ca.crt}
{{- if not $nats.tls.caOnly }}
- {name: RESTOW_NATS_CERTIFICATE, value: /tls/tls.crt}
- {name: RESTOW_NATS_KEY, value: /tls/tls.key}
{{- end }}
{{- end }}
{{- end }}

{{/* And the files of that: read again for each new connection. Where they are mounted, and what they are. root; user. */}}
{{- define "restow.natsMounts" -}}
{{- if .Values.nats.tls.enabled }}
- {name: broker, mountPath: /tls, readOnly: true}
{{- end }}
{{- if .Values.nats.keys }}
- {name: credentials, mountPath: /nats, readOnly: true}
{{- end }}
{{- end }}

{{- define "restow.natsVolumes" -}}
{{- if .root.Values.nats.tls.enabled }}
- name: broker
  secret: {secretName: {{ include "restow.brokerTLS" .root }}, defaultMode: 0440}
{{- end }}
{{- if .root.Values.nats.keys }}
- name: credentials
  secret:
    secretName: {{ include "restow.passwords" .root }}
    defaultMode: 0440
    items: [{key: {{ .user }}, path: credentials}]
{{- end }}
{{- end }}

{{/* Egress rules: the broker, and DNS for its name. */}}
{{- define "restow.toLog" -}}
{{- if .Values.nats.enabled }}
- to:
    - podSelector:
        matchLabels:
          app.kubernetes.io/component: log
          app.kubernetes.io/part-of: restow
  ports:
    - {protocol: TCP, port: 4222}
{{- else }}
- ports:
    {{- range .Values.networkPolicy.natsPorts }}
    - {protocol: TCP, port: {{ int . }}}
    {{- else }}
    {{- range splitList "," .Values.nats.url }}
    - {protocol: TCP, port: {{ regexFind ":[0-9]+$" . | trimPrefix ":" | default "4222" }}}
    {{- end }}
    {{- end }}
{{- end }}
{{ include "restow.toDNS" . }}
{{- end }}

{{/* An egress rule: whoever knows the addresses of names. */}}
{{- define "restow.toDNS" -}}
- to: {{- toYaml .Values.networkPolicy.dns.peers | nindent 4 }}
  ports:
    {{- range .Values.networkPolicy.dns.ports }}
    - {protocol: UDP, port: {{ int . }}}
    - {protocol: TCP, port: {{ int . }}}
    {{- end }}
{{- end }}

{{/* Where spans go. */}}
{{- define "restow.tracesEnv" -}}
{{- with .Values.traces -}}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ .endpoint | quote }}}
{{- with .headersSecret }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom:
    secretKeyRef: {name: {{ . }}, key: headers}
{{- end }}
{{- end }}
{{- end }}

{{/* An egress rule: the collector, wherever it is. */}}
{{- define "restow.toCollector" -}}
{{- $host := (urlParse .Values.traces.endpoint).host }}
- ports:
    {{- range .Values.networkPolicy.collectorPorts }}
    - {protocol: TCP, port: {{ int . }}}
    {{- else }}
    - {protocol: TCP, port: {{ regexFind ":[0-9]+$" $host | trimPrefix ":" | default (hasPrefix "http://" .Values.traces.endpoint | ternary "80" "443") }}}
    {{- end }}
{{- end }}

{{- define "restow.apiSecret" -}}
{{ .Values.descheduler.api.existingSecret | default "restow-descheduler-api" }}
{{- end }}

{{/* Whether plans can be approved from the console, by the Secret that says by whom; and the Secret with the token for that. */}}
{{- define "restow.approves" -}}
{{- if and .Values.console.enabled .Values.console.access.existingSecret }}{{ .Values.console.access.existingSecret }}{{ end }}
{{- end }}

{{- define "restow.answersSecret" -}}
{{ .Values.console.access.answersSecret | default "restow-console-answers" }}
{{- end }}

{{/* As whom a pod of ours runs. */}}
{{- define "restow.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* What a container of ours may do: nothing. */}}
{{- define "restow.containerSecurity" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Objects of a file, in this namespace, with the labels. Without `shared`, only what an installation has of its own: what is in its namespace,
     and bindings of its accounts, under names of their own.
     root; text; annotations (optional); place: the namespace that they are for (optional). */}}
{{- define "restow.objects" -}}
{{- $root := .root }}
{{- $namespace := $root.Release.Namespace }}
{{- $notes := .annotations }}
{{- range splitList "\n---\n" (print "\n" .text) }}
{{- $object := . | replace "restow-system" $namespace | fromYaml }}
{{- if $object.kind }}
{{- $meta := $object.metadata }}
{{- $rights := hasPrefix "rbac.authorization.k8s.io/" $object.apiVersion }}
{{- $clustered := or (has $object.kind (list "Namespace" "CustomResourceDefinition" "ClusterRole" "ClusterRoleBinding")) (hasPrefix "admissionregistration.k8s.io/" $object.apiVersion) }}
{{- if $.place }}{{ $_ := set $meta "namespace" $.place }}{{ end }}
{{- $common := or $clustered (ne ($meta.namespace | default $namespace) $namespace) }}
{{- if or $root.Values.shared (not $common) (and $rights (hasSuffix "Binding" $object.kind)) }}
{{- if and $common (not $root.Values.shared) }}{{ $_ := set $meta "name" (print $meta.name "-" $namespace) }}{{ end }}
{{- if not $clustered }}{{ $_ := set $meta "namespace" ($meta.namespace | default $namespace) }}{{ end }}
{{- $_ := set $meta "labels" (merge (include "restow.labels" $root | fromYaml) ($meta.labels | default dict)) }}
{{- if $notes }}{{ $_ := set $meta "annotations" (merge $notes ($meta.annotations | default dict)) }}{{ end }}
{{- $roles := and (eq $object.kind "ServiceAccount") (eq $meta.name "restow-garbage-collector") $root.Values.garbageCollector.serviceAccountAnnotations }}
{{- if $roles }}{{ $_ := set $meta "annotations" $roles }}{{ end }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
