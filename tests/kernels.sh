#!/bin/bash
# Runs black-box tests on other kernels: those that Debian has as packages, booted in an emulator (qemu without
# virtualisation, so some twenty times slower, but anywhere), with two processors and, with --nodes, two NUMA nodes.
#
#     tests/kernels.sh [--nodes] [--kernel PACKAGE]... [TEST [FILTER]...]
#
# TEST is a file of tests/tests without .rs (default: ends). Kernels: the newest linux-image-6.1*-cloud-amd64, which cannot
# move pages, and linux-image-6.12*-cloud-amd64, which can. Needs root, qemu-system-x86, debootstrap, e2fsprogs, Debian's
# package lists, 5 GB, and the project built (make, cargo test --no-run). Everything is kept in target/kernels for the next time.
set -eu

usage() { echo "kernels.sh: $1" >&2; exit 125; }

here=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$here/target}
place=$target/kernels
kernels=() numa=() tests=()
while [ $# -gt 0 ]; do
	case $1 in
	--nodes)
		for node in 0 1; do
			numa+=(-object "memory-backend-ram,size=1536M,id=m$node" -numa "node,nodeid=$node,cpus=$node,memdev=m$node")
		done ;;
	--kernel) [ $# -gt 1 ] || usage "--kernel needs a package"; kernels+=("$2"); shift ;;
	-*) usage "unknown option $1" ;;
	*) tests+=("$1") ;;
	esac
	shift
done
[ ${#tests[@]} -gt 0 ] || tests=(ends)
[ "$(id -u)" = 0 ] || usage "needs root"
missing=
for tool in qemu-system-x86_64 debootstrap mkfs.ext4 debugfs apt-get; do
	command -v "$tool" > /dev/null || missing="$missing $tool"
done
[ -z "$missing" ] || usage "missing:$missing (packages qemu-system-x86, debootstrap, e2fsprogs)"
[ -f "$target/release/ream" ] || usage "not built yet; run make first"

newest() { apt-cache pkgnames linux-image- | grep -E "^linux-image-$1[0-9]+(\+deb[0-9]+)?-cloud-amd64\$" | sort -V | tail -1; }
if [ ${#kernels[@]} = 0 ]; then
	for version in '6\.1\.0-' '6\.12\.'; do
		name=$(newest "$version")
		[ -n "$name" ] || usage "no package linux-image-$version*-cloud-amd64 (apt-get update?)"
		kernels+=("$name")
	done
fi

mkdir -p "$place"
for kernel in "${kernels[@]}"; do
	[ -d "$place/$kernel" ] && continue
	rm -rf "$place/$kernel.new"
	mkdir "$place/$kernel.new"
	(cd "$place/$kernel.new" && apt-get -o APT::Sandbox::User=root download "$kernel" > /dev/null && dpkg-deb -x ./*.deb . && rm ./*.deb)
	mv "$place/$kernel.new" "$place/$kernel"
done
if [ ! -d "$place/root" ]; then
	rm -rf "$place/root.new"
	debootstrap --variant=minbase --include=gcc,g++,gfortran,libc6-dev,make,python3,python3-numpy,procps,iproute2,numactl,kmod \
		"$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)" "$place/root.new" > "$place/debootstrap.log" 2>&1 ||
		usage "debootstrap failed; see $place/debootstrap.log"
	mv "$place/root.new" "$place/root"
fi

# The project at its own path, with what is built of it; then an image of all that.
inside=$place/root$here
rm -rf "$inside"
mkdir -p "$inside/target/release" "$inside/target/debug/deps" "$inside/target/ream-tests"
git -C "$here" ls-files -z tests include bench crates/cli/golden | (cd "$here" && tar --null -T - -c) | tar -x -C "$inside"
cp "$target"/release/ream "$target"/release/*.so "$inside/target/release/"
test=${tests[0]}
binary=$(find "$target/debug/deps" -name "$test-*" -type f -perm -100 -printf '%T@ %p\n' | sort -n | tail -1 | cut -d' ' -f2-)
[ -n "$binary" ] || usage "tests/tests/$test.rs is not built; run cargo test --package ream-tests --no-run"
cp "$binary" "$inside/target/debug/deps/$test"
cat > "$place/root/init-ream" << END
#!/bin/bash
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /tmp
mkdir -p /dev/pts /dev/shm; mount -t devpts devpts /dev/pts; mount -t tmpfs tmpfs /dev/shm; mount -t cgroup2 cgroup /sys/fs/cgroup
echo "+memory" > /sys/fs/cgroup/cgroup.subtree_control
ip link set lo up
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 REAM_TEST_PATIENCE=30
cd $here
echo "Linux \$(uname -r), \$(nproc) processors, \$(ls -d /sys/devices/system/node/node* | wc -l) nodes"
target/debug/deps/$test --test-threads=2 ${tests[*]:1}
echo "status \$?"
sync; echo o > /proc/sysrq-trigger; sleep 60
END
chmod 755 "$place/root/init-ream"
image=$place/disk.img
rm -f "$image"
trap 'rm -f "$image"' EXIT
truncate -s 40G "$image"
mkfs.ext4 -q -d "$place/root" "$image"

status=0
for kernel in "${kernels[@]}"; do
	log=$place/$kernel.log
	echo "== $kernel: $test (log: $log)"
	timeout 7200 qemu-system-x86_64 -accel tcg,thread=multi,tb-size=1024 -cpu max -smp 2 -m 3G -nographic -no-reboot -snapshot \
		-kernel "$(ls "$place/$kernel"/boot/vmlinuz-*)" -append "root=/dev/nvme0n1 rw console=ttyS0 init=/init-ream quiet panic=1" \
		-drive "file=$image,if=none,id=d,format=raw" -device nvme,serial=x,drive=d "${numa[@]}" < /dev/null > "$log" 2>&1 || true
	tr -d '\r' < "$log" | grep -ao '^test .*\|Linux [0-9].* nodes$\|^status .*\|^SKIPPED.*' || true
	tr -d '\r' < "$log" | grep -aq '^status 0$' || status=1
done
exit $status
