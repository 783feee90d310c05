#!/bin/sh
# Builds a small kernel for a guest, of Debian 13's source with the options of the
# file "config" beside this one: Debian's own kernels have neither iommufd nor a
# mode without an IOMMU. The package is downloaded and not installed, and comes
# from where this machine's own apt gets Debian. It needs gcc, make, flex, bison,
# bc, xz and libelf's headers, and takes some minutes.
#
#   build.sh FOLDER       makes FOLDER/vmlinuz, unless it was made of this config
set -eu

to=$1
config=$(cd "$(dirname "$0")" && pwd)/config
cmp -s "$config" "$to/config" && exit 0
source=linux-source-6.12
for tool in gcc make flex bison bc xz; do
	command -v $tool > /dev/null || { echo "$tool is missing (apt-get install build-essential flex bison bc xz-utils libelf-dev)" >&2; exit 1; }
done

mirror=$(apt-get indextargets --format '$(REPO_URI) $(LABEL)' 'Created-By: Packages' | awk '$2 == "Debian" {print $1; exit}')
[ -n "$mirror" ] || { echo "this machine's apt knows no mirror of Debian" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial"
: > "$work/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" > "$work/sources.list"
cat > "$work/apt.conf" <<END
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "$work/state";
Dir::State::status "$work/status";
Dir::Cache "$work/cache";
APT::Architecture "amd64";
APT::Sandbox::User "root";
END
export APT_CONFIG="$work/apt.conf"
apt-get -qq update
cd "$work"
apt-get -qq download $source
dpkg-deb --fsys-tarfile $source*.deb | tar -x -O "./usr/src/$source.tar.xz" | tar -x -J
cd $source

make -s tinyconfig
scripts/kconfig/merge_config.sh -m .config "$config" > /dev/null
make -s olddefconfig
grep '^CONFIG' "$config" | while read -r option; do
	grep -qx "$option" .config || { echo "the kernel can't have $option" >&2; exit 1; }
done
make -s -j"$(nproc)" bzImage

mkdir -p "$to"
cp arch/x86/boot/bzImage "$to/vmlinuz"
make -s kernelrelease > "$to/release"
cp "$config" "$to/config"
