#!/usr/bin/env bash
# A real cluster to test on: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and kwok (which plays kubelets),
# built from the Go module proxy. Only what the folder lacks is built.
#
#   tests/kubernetes/build.sh FOLDER [MINOR.PATCH, by default 36.3]     37.2 for what that version has, which is skipped otherwise
#   KARPENTER=1 tests/kubernetes/build.sh FOLDER          also Karpenter with its kwok provider, and its CRDs: six minutes more
#   HELM=1 tests/kubernetes/build.sh FOLDER               also Helm, for the chart: two minutes more
#   KUEUE=1 tests/kubernetes/build.sh FOLDER              also Kueue, and its manifests
#   S3=1 tests/kubernetes/build.sh FOLDER                 also an S3 server, for the archive in a bucket: two minutes more
#   OTEL=1 tests/kubernetes/build.sh FOLDER               also an OpenTelemetry collector, for traces: three minutes more
#   ONLY=1 HELM=1 tests/kubernetes/build.sh FOLDER        Helm and no cluster; so with S3, OTEL
#
# Needs Go 1.26 and eight minutes on two cores the first time. The folder is one for KUBEBUILDER_ASSETS.
set -euo pipefail
folder=${1:?usage: build.sh FOLDER [MINOR.PATCH]}
version=${2:-36.3}
etcd=v3.6.16
kwok=v0.8.0
karpenter=v1.15.0
helm=v4.3.1
kueue=v0.17.0
s3=v1.8.0
otel=v0.165.0
parts="kube-apiserver kube-controller-manager kube-scheduler kubectl"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

lacking=
test -z "${ONLY:-}" || parts=
for one in $parts; do
    case $one in kubectl) said="version --client" ;; *) said=--version ;; esac
    # shellcheck disable=SC2086
    "$folder/$one" $said 2>/dev/null | grep -q " v1.$version\$" || lacking+=" $one"
done
test -n "${ONLY:-}" || test -x "$folder/etcd" || lacking+=" etcd"
test -n "${ONLY:-}" || test -x "$folder/kwok" || lacking+=" kwok"
test -z "${KARPENTER:-}" || test -x "$folder/karpenter" || lacking+=" karpenter"
test -z "${HELM:-}" || "$folder/helm" version --short 2>/dev/null | grep -q "^$helm" || lacking+=" helm"
test -z "${S3:-}" || test -x "$folder/versitygw" || lacking+=" versitygw"
test -z "${OTEL:-}" || test -x "$folder/otelcol" || lacking+=" otelcol"
test -z "${KUEUE:-}" || test -x "$folder/kueue" || lacking+=" kueue"
test -n "$lacking" || exit 0

command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin
command -v go >/dev/null || { echo "build.sh: needs Go 1.26 (https://go.dev/dl); found none" >&2; exit 2; }
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
export GOFLAGS="-mod=mod -buildvcs=false" GOWORK=off CGO_ENABLED=0

# fetch MODULE VERSION FOLDER: the source of a module, to build in.
fetch() {
    local source
    source=$(cd "$work" && go mod download -json "$1@$2" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    cp -r "$source" "$3"
    chmod -R u+w "$3"
    rm -rf "$3/go.work" "$3/go.work.sum" "$3/vendor"
}

kubernetes() {
    test -d "$work/kubernetes" && return
    echo "Fetching Kubernetes 1.$version ..." >&2
    fetch k8s.io/kubernetes "v1.$version" "$work/kubernetes"
    # The module names its parts by folders that its zip does not have; they are modules of their own, of version 0.x.
    sed -i -e '/^replace (/,/^)/d' -e "s#^\(\tk8s\.io/[a-z-]*\) v0\.0\.0\$#\1 v0.$version#" -e "s#^\(\tk8s\.io/[a-z-]*\) v0\.0\.0 #\1 v0.$version #" \
        "$work/kubernetes/go.mod"
}

names=
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    names+=" -X $package.gitVersion=v1.$version -X $package.gitMajor=1 -X $package.gitMinor=${version%%.*}"
done
for one in $parts; do
    [[ " $lacking " == *" $one "* ]] || continue
    kubernetes
    echo "Building $one ..." >&2
    # Built beside it and renamed: a folder whose files are links to another's keeps them.
    (cd "$work/kubernetes" && go build -ldflags "-s -w$names" -o "$folder/$one.new" "./cmd/$one")
    mv "$folder/$one.new" "$folder/$one"
done

if [[ " $lacking " == *" etcd "* ]]; then
    echo "Building etcd $etcd ..." >&2
    mkdir "$work/etcd"
    (
        cd "$work/etcd"
        printf 'module etcd\ngo 1.24\nrequire go.etcd.io/etcd/server/v3 %s\n' "$etcd" >go.mod
        printf 'package main\n\nimport (\n\t"os"\n\n\t"go.etcd.io/etcd/server/v3/etcdmain"\n)\n\nfunc main() { etcdmain.Main(os.Args) }\n' >main.go
        go build -ldflags "-s -w" -o "$folder/etcd" .
    )
fi

if [[ " $lacking " == *" kwok "* ]]; then
    echo "Building kwok $kwok ..." >&2
    fetch sigs.k8s.io/kwok "$kwok" "$work/kwok"
    (cd "$work/kwok" && go build -ldflags "-s -w" -o "$folder/kwok" ./cmd/kwok)
fi

if [[ " $lacking " == *" helm "* ]]; then
    echo "Building Helm $helm ..." >&2
    fetch "helm.sh/helm/${helm%%.*}" "$helm" "$work/helm"
    (cd "$work/helm" && go build -ldflags "-s -w -X helm.sh/helm/${helm%%.*}/internal/version.version=$helm" -o "$folder/helm.new" ./cmd/helm)
    mv "$folder/helm.new" "$folder/helm"
fi

if [[ " $lacking " == *" karpenter "* ]]; then
    echo "Building Karpenter $karpenter ..." >&2
    # It asks for a newer patch of Go than it needs, so its zip is taken whatever that says.
    (cd "$work" && go mod download -json "sigs.k8s.io/karpenter@$karpenter" >/dev/null) || true
    cp -r "$(go env GOMODCACHE)/sigs.k8s.io/karpenter@$karpenter" "$work/karpenter"
    chmod -R u+w "$work/karpenter"
    sed -i -e 's/^go 1\.26.*/go 1.26.0/' -e '/^toolchain/d' "$work/karpenter/go.mod"
    mkdir -p "$folder/karpenter-crds"
    cp "$work"/karpenter/kwok/charts/crds/*.yaml "$work"/karpenter/kwok/apis/crds/*.yaml "$folder/karpenter-crds"
    (cd "$work/karpenter" && go build -ldflags "-s -w" -o "$folder/karpenter" ./kwok)
fi

if [[ " $lacking " == *" kueue "* ]]; then
    echo "Building Kueue $kueue ..." >&2
    fetch sigs.k8s.io/kueue "$kueue" "$work/kueue"
    (cd "$work/kueue" && go build -ldflags "-s -w" -o "$folder/kueue.new" ./cmd/kueue)
    "$folder/kubectl" kustomize "$work/kueue/config/default" >"$folder/kueue.yaml"
    mv "$folder/kueue.new" "$folder/kueue"
fi

if [[ " $lacking " == *" versitygw "* ]]; then
    echo "Building versitygw $s3 ..." >&2
    fetch github.com/versity/versitygw "$s3" "$work/versitygw"
    (cd "$work/versitygw" && go build -ldflags "-s -w" -o "$folder/versitygw.new" ./cmd/versitygw)
    mv "$folder/versitygw.new" "$folder/versitygw"
fi

if [[ " $lacking " == *" otelcol "* ]]; then
    echo "Building an OpenTelemetry collector $otel ..." >&2
    cp -r "$(dirname "${BASH_SOURCE[0]}")/otelcol" "$work/otelcol"
    (
        cd "$work/otelcol"
        go mod init otelcol 2>/dev/null
        for module in otelcol receiver/otlpreceiver exporter/debugexporter; do go get "go.opentelemetry.io/collector/$module@$otel"; done
        go mod tidy
        go build -ldflags "-s -w" -o "$folder/otelcol.new" .
    )
    mv "$folder/otelcol.new" "$folder/otelcol"
fi
