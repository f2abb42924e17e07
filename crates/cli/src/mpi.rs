//! Programs of MPI: which implementation one uses, the library of ours that goes with it, and what that implementation
//! has to be told so that a rank that waits does not keep its processor busy.

use crate::code::libraries::closure;
use crate::elf::{Image, Layout};
use crate::program;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// An implementation of MPI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mpi {
    /// Open MPI.
    Open,
    /// MPICH, and those that keep to its binary interface.
    Mpich,
}

/// Names of libraries that belong to an implementation: what they begin with.
const LIBRARIES: &[(&str, Mpi)] = &[
    ("libmpich.so.12", Mpi::Mpich),
    ("libmpi.so.12", Mpi::Mpich),
    ("libmpi.so.40", Mpi::Open),
    // What mpirun is linked with.
    ("libopen-rte.so.", Mpi::Open),
];
/// Names of launchers that no library gives away.
const LAUNCHERS: &[(&str, Mpi)] = &[("mpiexec.hydra", Mpi::Mpich), ("mpiexec.mpich", Mpi::Mpich)];

impl Mpi {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Mpi::Open => "Open MPI",
            Mpi::Mpich => "MPICH",
        }
    }

    /// The name of our library for it.
    pub fn library_name(self) -> &'static str {
        match self {
            Mpi::Open => "libream-mpi-openmpi.so",
            Mpi::Mpich => "libream-mpi-mpich.so",
        }
    }

    /// Our library for it, beside libream.so; `None` where Ream was built without.
    pub fn library(self, beside: &Path) -> Option<PathBuf> {
        Some(beside.with_file_name(self.library_name())).filter(|path| path.is_file())
    }

    /// Variables that it gets, unless the user has decided on them. `usermode`: system calls on absent pages fail, also
    /// those of one rank on another's memory.
    pub fn variables(self, usermode: bool, variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<(OsString, OsString)> {
        let mut all: Vec<(&str, &str)> = match self {
            Mpi::Open => vec![("OMPI_MCA_mpi_yield_when_idle", "1")],
            Mpi::Mpich => Vec::new(),
        };
        // UCX would put a handler of its own for SIGSEGV, and its own code into libc's functions that map memory.
        all.extend([("UCX_ERROR_SIGNALS", ""), ("UCX_MEM_EVENTS", "n")]);
        if usermode {
            // Both may use UCX, which takes TCP for large messages inside a node where cma is missing; that hangs in MPI_Finalize at
            // times, without Ream as well (UCX 1.13). Where TCP may be needed for other nodes, large messages go as small ones do.
            let chosen = variable("UCX_TLS").is_some();
            if one_node(variable) {
                all.push(("UCX_TLS", "^cma,tcp"));
            } else {
                all.push(("UCX_TLS", "^cma"));
                all.extend((!chosen).then_some(("UCX_RNDV_THRESH", "inf")));
            }
            // Open MPI has single copies of its own with shared memory, since its version 5 apart.
            if self == Mpi::Open {
                all.extend([
                    ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
                    ("OMPI_MCA_smsc", "^cma,knem,xpmem"),
                ]);
            }
        }
        let unset = all.into_iter().filter(|(name, _)| variable(name).is_none());
        unset.map(|(name, value)| (name.into(), value.into())).collect()
    }
}

/// Whether the launcher says that all ranks of the job are on this node.
fn one_node(variable: &dyn Fn(&str) -> Option<OsString>) -> bool {
    let number = |name: &str| variable(name)?.to_str()?.parse::<u32>().ok();
    // Hydra, and Open MPI.
    let sizes = [("MPI_LOCALNRANKS", "PMI_SIZE"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE")];
    match sizes.into_iter().find_map(|(here, all)| Some((number(here)?, number(all)?))) {
        Some((here, all)) => here == all,
        None => number("SLURM_PROCID").is_some() && number("SLURM_STEP_NUM_NODES") == Some(1),
    }
}

/// The implementation that a program uses or launches, if it uses one. A rank whose program does not tell, such as a script's
/// interpreter, is judged by what has launched it.
pub fn of(file: &Path, path: Option<&OsStr>, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<Mpi> {
    let of_name = |name: &OsStr, known: &[(&str, Mpi)]| {
        known.iter().find(|(start, _)| name.as_bytes().starts_with(start.as_bytes())).map(|(_, mpi)| *mpi)
    };
    let links = program::chain(file, path);
    if let Some(link) = links.last().filter(|link| matches!(link.image, Image::Dynamic { .. })) {
        let real = std::fs::canonicalize(&link.file).unwrap_or_else(|_| link.file.clone());
        if let Some(mpi) = real.file_name().and_then(|name| of_name(name, LAUNCHERS)) {
            return Some(mpi);
        }
        if let Some(layout) = Layout::read(&link.opened) {
            let libraries = closure(&link.file, &layout, None, variable("LD_LIBRARY_PATH").as_deref());
            let needed = libraries.iter().flat_map(|library| &library.layout.needed).chain(&layout.needed);
            if let Some(mpi) = needed.filter_map(|name| of_name(name, LIBRARIES)).next() {
                return Some(mpi);
            }
        }
    }
    if variable("OMPI_COMM_WORLD_SIZE").is_some() {
        return Some(Mpi::Open);
    }
    let hydra = variable("PMI_RANK").is_some() && variable("HYDI_CONTROL_FD").is_some();
    hydra.then_some(Mpi::Mpich)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launcher_decides_for_programs_that_do_not_tell() {
        let shell = Path::new("/bin/sh");
        assert_eq!(of(shell, None, &|_| None), None);
        assert_eq!(of(shell, None, &|name| (name == "OMPI_COMM_WORLD_SIZE").then(|| "2".into())), Some(Mpi::Open));
        let hydra = |name: &str| ["PMI_RANK", "HYDI_CONTROL_FD"].contains(&name).then(|| OsString::from("2"));
        assert_eq!(of(shell, None, &hydra), Some(Mpi::Mpich));
    }

    #[test]
    fn what_the_user_has_set_stays() {
        let set = |name: &str| (name == "UCX_MEM_EVENTS").then(|| OsString::from("y"));
        let names =
            |usermode| -> Vec<_> { Mpi::Open.variables(usermode, &set).into_iter().map(|(name, _)| name).collect() };
        assert_eq!(names(false), ["OMPI_MCA_mpi_yield_when_idle", "UCX_ERROR_SIGNALS"]);
        assert_eq!(names(true).len(), 6);
    }

    #[test]
    fn large_messages_do_not_go_by_tcp_inside_a_node() {
        let ucx = |set: &[(&str, &str)]| -> Vec<String> {
            let variable =
                |name: &str| set.iter().find(|(one, _)| *one == name).map(|(_, value)| OsString::from(*value));
            let all = Mpi::Mpich.variables(true, &variable).into_iter();
            let all = all.map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()));
            all.filter(|text| text.starts_with("UCX_TLS") || text.starts_with("UCX_RNDV")).collect()
        };
        let (here, perhaps_elsewhere) = (["UCX_TLS=^cma,tcp"], ["UCX_TLS=^cma", "UCX_RNDV_THRESH=inf"]);
        assert_eq!(ucx(&[]), perhaps_elsewhere);
        assert_eq!(ucx(&[("MPI_LOCALNRANKS", "2"), ("PMI_SIZE", "2")]), here);
        assert_eq!(ucx(&[("MPI_LOCALNRANKS", "2"), ("PMI_SIZE", "4")]), perhaps_elsewhere);
        assert_eq!(ucx(&[("OMPI_COMM_WORLD_LOCAL_SIZE", "3"), ("OMPI_COMM_WORLD_SIZE", "3")]), here);
        let step = [("PMI_SIZE", "2"), ("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_NODES", "1")];
        assert_eq!(ucx(&step), here);
        assert_eq!(ucx(&[("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_NODES", "2")]), perhaps_elsewhere);
        assert_eq!(ucx(&[("UCX_TLS", "all")]), [""; 0]);
        assert_eq!(ucx(&[("UCX_RNDV_THRESH", "1m")]), ["UCX_TLS=^cma"]);
    }
}
