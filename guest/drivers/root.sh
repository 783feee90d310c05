#!/bin/sh
# Makes a folder with programs of Debian 13 and its backports: a QEMU that has
# vfio-user-pci (10.1 and later), and tools for a guest. Nothing is installed and
# no package's scripts run. Where packages come from is what this machine's own
# apt uses for Debian.
#
#   root.sh FOLDER
set -eu

root=$1
[ -e "$root/complete" ] && exit 0
suite=trixie
packages="qemu-system-x86 iperf3 ethtool iproute2 busybox-static"

mirror=$(apt-get indextargets --format '$(REPO_URI) $(LABEL)' 'Created-By: Packages' | awk '$2 == "Debian" {print $1; exit}')
[ -n "$mirror" ] || { echo "this machine's apt knows no mirror of Debian" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/etc" "$work/root"
: > "$work/state/status"
cat > "$work/etc/sources.list" <<END
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite-backports main
END
cat > "$work/apt.conf" <<END
Dir::Etc::sourcelist "$work/etc/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "$work/state";
Dir::State::status "$work/state/status";
Dir::Cache "$work/cache";
APT::Architecture "amd64";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
END
export APT_CONFIG="$work/apt.conf"
apt-get -qq update
# shellcheck disable=SC2086
apt-get -qq -y -t "$suite-backports" --download-only install $packages

# The folders that are links in Debian, before anything is put there.
for d in bin sbin lib lib64; do
	mkdir -p "$work/root/usr/$d"
	ln -s "usr/$d" "$work/root/$d"
done
for deb in "$work"/cache/archives/*.deb; do
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work/root" --keep-directory-symlink --no-same-owner
done
touch "$work/root/complete"
mkdir -p "$(dirname "$root")"
rm -rf "$root"
mv "$work/root" "$root"
