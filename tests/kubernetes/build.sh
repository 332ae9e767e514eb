#!/usr/bin/env bash
# A real API server to test on: etcd, kube-apiserver, kube-controller-manager and kubectl, built from the Go module proxy.
#
#   tests/kubernetes/build.sh FOLDER [MINOR.PATCH, by default 36.3]
#
# Needs Go 1.26 and five minutes on two cores the first time. The folder is one for KUBEBUILDER_ASSETS.
set -euo pipefail
folder=${1:?usage: build.sh FOLDER [MINOR.PATCH]}
version=${2:-36.3}
etcd=v3.6.16
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
if "$folder/kube-apiserver" --version 2>/dev/null | grep -q " v1.$version\$" && test -x "$folder/etcd" -a -x "$folder/kubectl" -a -x "$folder/kube-controller-manager"; then
    exit 0
fi
command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin
command -v go >/dev/null || { echo "build.sh: needs Go 1.26 (https://go.dev/dl); found none" >&2; exit 2; }
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
export GOFLAGS="-mod=mod -buildvcs=false" GOWORK=off CGO_ENABLED=0

echo "Fetching Kubernetes 1.$version ..." >&2
cd "$work"
source=$(go mod download -json "k8s.io/kubernetes@v1.$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
cp -r "$source" kubernetes
chmod -R u+w kubernetes
cd kubernetes
# The module names its parts by folders that its zip does not have; they are modules of their own, of version 0.x.
rm -rf go.work go.work.sum vendor
sed -i -e '/^replace (/,/^)/d' -e "s#^\(\tk8s\.io/[a-z-]*\) v0\.0\.0\$#\1 v0.$version#" -e "s#^\(\tk8s\.io/[a-z-]*\) v0\.0\.0 #\1 v0.$version #" go.mod
names=
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    names+=" -X $package.gitVersion=v1.$version -X $package.gitMajor=1 -X $package.gitMinor=${version%%.*}"
done
for one in kube-apiserver kube-controller-manager kubectl; do
    echo "Building $one ..." >&2
    go build -ldflags "-s -w$names" -o "$folder/$one" "./cmd/$one"
done

echo "Building etcd $etcd ..." >&2
mkdir "$work/etcd"
cd "$work/etcd"
printf 'module etcd\ngo 1.24\nrequire go.etcd.io/etcd/server/v3 %s\n' "$etcd" >go.mod
printf 'package main\n\nimport (\n\t"os"\n\n\t"go.etcd.io/etcd/server/v3/etcdmain"\n)\n\nfunc main() { etcdmain.Main(os.Args) }\n' >main.go
go build -ldflags "-s -w" -o "$folder/etcd" .
