# The front door: build, try, check, bench, install. "make help" lists the targets.

CARGO ?= cargo
# Tests send signals, and whoever starts make in the background may have left some of them ignored.
unignored := env --default-signal --unset=MAKEFLAGS --unset=MFLAGS
PREFIX ?= /usr/local
DESTDIR ?=
INSTALL ?= install

target := $(or $(CARGO_TARGET_DIR),target)
release := $(target)/release
bin := $(DESTDIR)$(PREFIX)/bin
lib := $(DESTDIR)$(PREFIX)/lib/ream
share := $(DESTDIR)$(PREFIX)/share
include := $(DESTDIR)$(PREFIX)/include
pkgconfig := $(DESTDIR)$(PREFIX)/lib/pkgconfig
cmake := $(DESTDIR)$(PREFIX)/lib/cmake/ream
units := $(DESTDIR)$(PREFIX)/lib/systemd/system
version = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
scripts = $(shell git ls-files '*.sh') .ci/run

# The libraries for programs of MPI, one for each implementation whose compiler is there, by its own name or as mpicc.
mpicc_openmpi = $(or $(shell command -v mpicc.openmpi),$(shell mpicc -show 2>/dev/null | grep -q openmpi && command -v mpicc))
mpicc_mpich = $(or $(shell command -v mpicc.mpich),$(shell mpicc -show 2>/dev/null | grep -q mpich && command -v mpicc))
mpi_libraries = $(if $(mpicc_openmpi),$(release)/libream-mpi-openmpi.so) $(if $(mpicc_mpich),$(release)/libream-mpi-mpich.so)
mpi_programs = $(patsubst $(release)/libream-mpi-%.so,$(release)/ream-bench-mpi-%,$(mpi_libraries)) $(mpi_fortran)
# Those in Fortran, where the implementation's compiler of it is there beside that of C, and has one to call.
mpifort_openmpi = $(wildcard $(patsubst %mpicc.openmpi,%mpifort.openmpi,$(patsubst %mpicc,%mpifort,$(mpicc_openmpi))))
mpifort_mpich = $(wildcard $(patsubst %mpicc.mpich,%mpifort.mpich,$(patsubst %mpicc,%mpifort,$(mpicc_mpich))))
mpi_fortran = $(if $(shell command -v gfortran),$(if $(mpifort_openmpi),$(release)/ream-bench-mpi-fortran-openmpi) \
	$(if $(mpifort_mpich),$(release)/ream-bench-mpi-fortran-mpich))

.PHONY: all build built library command dlm mpi nas noise models wheel try check bench bench-quick bench-all install uninstall fmt lint test blackbox scripts clean help
all: build

help:
	@echo 'make           build the command and the library'
	@echo 'make try       show the main job: a data program on more data than it is given RAM'
	@echo 'make check     run every check and test'
	@echo 'make bench     measure paging against the raw device, kernel swap and RAM'
	@echo 'make bench-quick    measure everything in some minutes; make bench-all: in an hour and a half. OUT=DIR names the results'
	@echo 'make install   install to DESTDIR and PREFIX ($(PREFIX)); make uninstall takes it away again'
	@echo 'make wheel     build the Python package, with Ream inside'
	@echo 'make fmt lint  format the code; check it with clippy, warnings denied'

build: library command mpi

# In a call of its own: cargo joins the features of all packages that it builds together, and the library must not get
# those that need the standard library.
library:
	$(CARGO) build --release --package ream-runtime
	$(CARGO) build --release --package ream-calls
	$(CARGO) build --release --package ream-inside

command: dlm nas noise models
	$(CARGO) build --release --package ream-cli --package ream-bench --package ream-dlmc

# The functions of dlm.h, which programs are linked with.
dlm:
	mkdir -p $(release)
	$(CC) -O2 -g -fPIC -Wall -Wextra -Werror -Iinclude -c dlm/dlm.c -o $(release)/dlm.o
	rm -f $(release)/libdlm.a
	$(AR) rc $(release)/libdlm.a $(release)/dlm.o

# Not linked with MPI: see mpi/shim.c.
mpi: $(mpi_libraries) $(mpi_programs)

# The programs of `ream bench mpi`, and others of its kind; one is compared to METIS where that is installed.
metis = $(wildcard /usr/include/metis.h)
$(release)/ream-bench-mpi-%: $(wildcard bench/mpi/*.c bench/mpi/*.h) $(metis)
	mkdir -p $(release)
	$(mpicc_$*) -O2 -g -std=gnu11 -Wall -Wextra -Werror -Wno-stringop-overflow $(if $(metis),-DWITH_METIS) $(filter %.c,$^) -o $@ \
		$(if $(metis),-lmetis)

$(release)/ream-bench-mpi-fortran-%: bench/mpi/stencil.f90
	mkdir -p $(release)/mpi-$*
	$(mpifort_$*) -O2 -g -fwrapv -Wall -Wextra -Werror $(OPENMP) -J$(release)/mpi-$* $< -o $@

$(release)/libream-mpi-%.so: mpi/shim.c mpi/asks.h mpi/copies.h mpi/counts.h mpi/drops.h mpi/handles.h mpi/turns.h mpi/calls.txt mpi/generate.sh
	mkdir -p $(release)/mpi-$*
	mpi/generate.sh $(mpicc_$*) > $(release)/mpi-$*/calls.inc
	$(CC) -O2 -g -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror -Impi -I$(release)/mpi-$* \
		$(shell $(mpicc_$*) -show | tr ' ' '\n' | grep '^-I') mpi/shim.c -Wl,-soname,$(notdir $@) -ldl -pthread -o $@.new
	mv $@.new $@

# The kernels of `ream bench nas` and `all`. OPENMP= builds them for one thread, where the compiler has no OpenMP.
OPENMP ?= -fopenmp
# The programs of `ream bench remote`; the one by FFTW where that is installed.
fftw = $(and $(OPENMP),$(wildcard /usr/include/fftw3.h))
nas:
	mkdir -p $(release)
	$(CC) -O2 -g -std=gnu11 -Wall -Wextra -Werror $(or $(OPENMP),-Wno-unknown-pragmas) bench/nas/*.c -o $(release)/ream-bench-nas -lm
	$(CC) -O2 -g -std=gnu11 -Wall -Wextra -Werror $(or $(OPENMP),-Wno-unknown-pragmas) $(if $(fftw),-DWITH_FFTW) bench/dlm/*.c -o $(release)/ream-bench-dlm $(if $(fftw),-lfftw3_omp -lfftw3) -lm -ldl

# What `ream noise` looks with.
noise:
	mkdir -p $(release)
	$(CC) -O2 -g -std=gnu11 -Wall -Wextra -Werror -pthread bench/noise/noise.c -o $(release)/ream-bench-noise

# What `ream bench all` runs as models of real programs.
models:
	mkdir -p $(release)
	$(CC) -O2 -g -std=gnu11 -Wall -Wextra -Werror -pthread $(or $(OPENMP),-Wno-unknown-pragmas) bench/models/*.c -o $(release)/ream-bench-models -lm

# The Python package, with the library and the command inside.
wheel:
	REAM_RELEASE=$(abspath $(release)) python/build.sh $(abspath $(target))/wheel

try:
	packaging/needs.sh try
	$(MAKE) build
	tests/try.sh

# Tests and build side by side: much of a release build is one processor's work, and most tests wait.
check:
	packaging/needs.sh check
	$(CARGO) fmt --all --check
	$(MAKE) lint
	$(MAKE) -j2 test built
	$(MAKE) blackbox

built: build
	$(CARGO) xtask check
	$(MAKE) scripts
	$(CARGO) test --package ream-tests --no-run

lint:
	$(CARGO) clippy --workspace --exclude ream-runtime --exclude ream-calls --exclude ream-inside --all-targets -- --deny warnings
	$(CARGO) clippy --package ream-runtime --all-targets -- --deny warnings
	$(CARGO) clippy --package ream-calls --all-targets -- --deny warnings
	$(CARGO) clippy --package ream-inside --all-targets -- --deny warnings

test:
	$(unignored) $(CARGO) test --workspace --exclude ream-runtime --exclude ream-calls --exclude ream-inside --exclude ream-tests
	$(unignored) $(CARGO) test --package ream-runtime
	$(unignored) $(CARGO) test --package ream-calls

# Those that must be alone see to that themselves.
blackbox:
	$(unignored) $(CARGO) xtask blackbox

scripts:
	shellcheck $(scripts)

bench:
	packaging/needs.sh bench
	$(MAKE) build
	$(release)/ream bench paging $(BENCH)

bench-quick bench-all:
	packaging/needs.sh bench
	$(MAKE) build
	$(release)/ream bench all $(if $(filter bench-all,$@),--full,--quick) $(if $(OUT),--out $(OUT)) $(BENCH)

fmt:
	$(CARGO) fmt --all

install:
	@test -f $(release)/ream -a -f $(release)/libream.so -a -f $(release)/libream_calls.so -a -f $(release)/libream_inside.so || { echo 'make install: not built yet; run make first' >&2; exit 1; }
	@test -f $(release)/dlmc -a -f $(release)/libdlm.a || { echo 'make install: dlmc is not built; run make first' >&2; exit 1; }
	$(INSTALL) -D -m 755 $(release)/ream $(bin)/ream
	$(INSTALL) -D -m 755 $(release)/ream-bench-worker $(bin)/ream-bench-worker
	$(foreach file,$(wildcard $(addprefix $(release)/ream-bench-mpi-,openmpi mpich fortran-openmpi fortran-mpich)),$(INSTALL) -D -m 755 $(file) $(bin)/$(notdir $(file));)
	$(INSTALL) -d $(lib)
	ln -sfn ../../bin/ream $(lib)/ream-handler
	$(INSTALL) -D -m 755 $(release)/ream-bench-kernels $(bin)/ream-bench-kernels
	$(INSTALL) -D -m 755 $(release)/ream-bench-coverage $(bin)/ream-bench-coverage
	$(INSTALL) -D -m 755 $(release)/ream-bench-nas $(bin)/ream-bench-nas
	$(INSTALL) -D -m 755 $(release)/ream-bench-dlm $(bin)/ream-bench-dlm
	$(INSTALL) -D -m 755 $(release)/ream-bench-noise $(bin)/ream-bench-noise
	$(INSTALL) -D -m 755 $(release)/ream-bench-models $(bin)/ream-bench-models
	$(INSTALL) -D -m 644 $(release)/libream.so $(lib)/libream.so
	$(INSTALL) -D -m 644 $(release)/libream_calls.so $(lib)/libream_calls.so
	$(INSTALL) -D -m 644 $(release)/libream_inside.so $(lib)/libream_inside.so
	$(foreach file,$(wildcard $(release)/libream-mpi-*.so),$(INSTALL) -D -m 644 $(file) $(lib)/$(notdir $(file));)
	$(INSTALL) -D -m 644 crates/cli/golden/ream.1 $(share)/man/man1/ream.1
	$(INSTALL) -D -m 644 crates/cli/golden/ream.bash $(share)/bash-completion/completions/ream
	$(INSTALL) -D -m 644 crates/cli/golden/_ream $(share)/zsh/site-functions/_ream
	$(INSTALL) -D -m 644 crates/cli/golden/ream.fish $(share)/fish/vendor_completions.d/ream.fish
	$(INSTALL) -D -m 644 include/ream.h $(include)/ream.h
	$(INSTALL) -D -m 755 $(release)/dlmc $(bin)/dlmc
	$(INSTALL) -D -m 644 $(release)/libdlm.a $(lib)/libdlm.a
	$(INSTALL) -D -m 644 include/dlm.h $(include)/dlm.h
	$(INSTALL) -d $(share)/ream/fortran
	fortran/generate.sh $(version) > $(share)/ream/fortran/ream.f90
	chmod 644 $(share)/ream/fortran/ream.f90
	$(INSTALL) -d $(pkgconfig) $(cmake)
	sed 's/@VERSION@/$(version)/' packaging/ream.pc.in > $(pkgconfig)/ream.pc
	sed 's/@VERSION@/$(version)/' packaging/reamConfigVersion.cmake.in > $(cmake)/reamConfigVersion.cmake
	$(INSTALL) -m 644 packaging/reamConfig.cmake $(cmake)/reamConfig.cmake
	sed 's/@VERSION@/$(version)/' packaging/dlm.pc.in > $(pkgconfig)/dlm.pc
	$(INSTALL) -d $(units)
	sed 's|/usr/local/bin|$(PREFIX)/bin|' packaging/ream-serve.service > $(units)/ream-serve.service
	chmod 644 $(units)/ream-serve.service
	chmod 644 $(pkgconfig)/ream.pc $(pkgconfig)/dlm.pc $(cmake)/reamConfigVersion.cmake
	$(INSTALL) -d $(share)/ream $(share)/doc/ream/examples
	tar -czf $(share)/ream/ream_$(version).tar.gz -C r --sort=name --owner=0 --group=0 --exclude='*.o' --exclude='*.so' --exclude=src/Makevars ream
	$(INSTALL) -m 644 $(wildcard examples/c/*.c examples/dlm/*.c examples/fortran/*.f90) $(share)/doc/ream/examples
	$(INSTALL) -m 644 README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE $(wildcard docs/*.md) $(share)/doc/ream

# What sets the machine up names files that would be gone: marked programs could not be started any more.
uninstall:
	@if grep -qs '$(lib)/ream-handler' /etc/binfmt.d/60-ream.conf /proc/sys/fs/binfmt_misc/ream; then \
		echo 'make: this machine is set up for Ream, which names what would be removed; first: $(bin)/ream setup --undo' >&2; exit 1; fi
	rm -f $(bin)/ream $(bin)/ream-bench-worker $(bin)/ream-bench-kernels $(bin)/ream-bench-coverage $(bin)/ream-bench-nas $(bin)/ream-bench-dlm $(bin)/ream-bench-noise $(bin)/ream-bench-models $(addprefix $(bin)/ream-bench-mpi-,openmpi mpich fortran-openmpi fortran-mpich) $(lib)/libream.so $(lib)/libream_calls.so $(lib)/libream_inside.so $(lib)/libream-mpi-*.so $(lib)/ream-handler $(share)/man/man1/ream.1 $(share)/bash-completion/completions/ream
	rm -f $(share)/zsh/site-functions/_ream $(share)/fish/vendor_completions.d/ream.fish
	rm -rf $(share)/doc/ream $(cmake) $(share)/ream/ream_*.tar.gz
	rm -f $(include)/ream.h $(pkgconfig)/ream.pc $(units)/ream-serve.service
	rm -f $(bin)/dlmc $(lib)/libdlm.a $(include)/dlm.h $(pkgconfig)/dlm.pc $(share)/ream/fortran/ream.f90
	-rmdir $(share)/ream/fortran $(share)/ream 2>/dev/null
	-rmdir $(lib) 2>/dev/null

clean:
	$(CARGO) clean
