//! Programs made up of what libc's functions begin with, and what is found in them: once, twice, damaged, or named
//! otherwise; and the jumps to the page of code and back.

use super::*;

const PROTECT: [u8; 16] = [0xb8, 0x0a, 0, 0, 0, 0x0f, 5, 0x48, 0x3d, 1, 0xf0, 0xff, 0xff, 0x73, 1, 0xc3];
const MAP: [u8; 26] = [
    0x41, 0xf7, 0xc1, 0xff, 0x0f, 0, 0, 0x75, 0x14, 0xb8, 9, 0, 0, 0, 0x0f, 5, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff, 0x77,
    0x25, 0xc3, 0x90,
];
const BRANCH_TARGET: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

struct Bytes(Vec<u8>);

impl FileExt for Bytes {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

const CODE_AT: usize = 0x1000;
const ADDRESS: u64 = 0x40_1000;

/// A static program of this code, with these symbols.
fn program(code: &[u8], symbols: Option<&[(&str, u64)]>) -> Bytes {
    let mut file = vec![0; CODE_AT];
    file[..5].copy_from_slice(b"\x7fELF\x02");
    file[5] = 1;
    file[16] = 2;
    file[18] = 62;
    file[32] = 64;
    (file[54], file[56]) = (56, 1);
    let code_bytes = (code.len() as u64).to_le_bytes();
    for (at, value) in [(64, 5 << 32 | 1), (72, CODE_AT as u64), (80, ADDRESS), (112, 0x1000)] {
        file[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
    }
    file[96..104].copy_from_slice(&code_bytes);
    file[104..112].copy_from_slice(&code_bytes);
    file.extend(code);
    let Some(symbols) = symbols else { return Bytes(file) };
    let (mut table, mut names) = (vec![0; 24], vec![0]);
    for (name, value) in symbols {
        table.extend((names.len() as u32).to_le_bytes());
        table.extend([0; 4]);
        table.extend(value.to_le_bytes());
        table.extend([0; 8]);
        names.extend(name.as_bytes());
        names.push(0);
    }
    let sections = [(2u64, table), (3, names)].map(|(kind, content)| {
        let at = file.len() as u64;
        file.extend(&content);
        let mut section = [0u8; 64];
        section[4..8].copy_from_slice(&(kind as u32).to_le_bytes());
        section[24..32].copy_from_slice(&at.to_le_bytes());
        section[32..40].copy_from_slice(&(content.len() as u64).to_le_bytes());
        section[40] = if kind == 2 { 2 } else { 0 };
        section
    });
    let at = (file.len() as u64).to_le_bytes();
    file[40..48].copy_from_slice(&at);
    (file[58], file[60]) = (64, 3);
    file.extend([0; 64]);
    file.extend(sections.concat());
    Bytes(file)
}

fn found(code: &[u8], symbols: Option<&[(&str, u64)]>) -> [Option<u64>; 2] {
    Sites::find(&program(code, symbols)).0
}

#[test]
fn what_is_there_once_is_found() {
    let code = [&[0x90; 7][..], &PROTECT, &[0x90; 9], &MAP, &[0xcc; 3]].concat();
    let both = [Some(CODE_AT as u64 + 7), Some(CODE_AT as u64 + 32 + 9)];
    assert_eq!(found(&code, None), both);
    let target = [&[0x90; 3][..], &BRANCH_TARGET, &PROTECT].concat();
    assert_eq!(found(&target, None), [Some(CODE_AT as u64 + 7), None]);
    assert_eq!(found(&[0x90; 64], None), [None; 2]);
    // At the very end, and cut off.
    assert_eq!(found(&PROTECT, None), [Some(CODE_AT as u64), None]);
    assert_eq!(found(&PROTECT[..15], None), [None; 2]);
}

#[test]
fn what_is_there_twice_is_left_alone() {
    let code = [&PROTECT[..], &MAP, &PROTECT].concat();
    assert_eq!(found(&code, None), [None, Some(CODE_AT as u64 + 25)]);
    assert_eq!(found(&[&MAP[..], &PROTECT, &MAP, &MAP].concat(), None), [Some(CODE_AT as u64 + 26), None]);
}

#[test]
fn another_call_is_not_taken_for_it() {
    for (at, byte) in [(1, 11), (6, 6), (9, 0), (13, 0x77), (15, 0x90)] {
        let mut code = PROTECT;
        code[at] = byte;
        assert_eq!(found(&code, None), [None; 2], "{at}");
    }
    for (at, byte) in [(3, 0), (7, 0x74), (10, 11), (18, 1), (22, 0x73), (24, 0x90)] {
        let mut code = MAP;
        code[at] = byte;
        assert_eq!(found(&code, None), [None; 2], "{at}");
    }
}

#[test]
fn symbols_must_agree() {
    let code = [&PROTECT[..], &MAP].concat();
    let both = found(&code, None);
    assert!(both.iter().all(Option::is_some));
    let of = |symbols: &[(&str, u64)]| found(&code, Some(symbols));
    assert_eq!(of(&[("mprotect", ADDRESS), ("mmap64", ADDRESS + 13)]), both);
    assert_eq!(of(&[("__mprotect", ADDRESS - 4), ("__mmap", ADDRESS + 16)]), both);
    assert_eq!(of(&[("mprotect", ADDRESS + 4), ("mmap", ADDRESS + 16)]), [None, both[1]]);
    assert_eq!(of(&[("mprotect", ADDRESS), ("mmap", ADDRESS - 200)]), [both[0], None]);
    assert_eq!(of(&[("munmap", ADDRESS), ("my_mmap", ADDRESS + 16)]), [None; 2]);
}

#[test]
fn damaged_files_have_nothing() {
    let code = [&PROTECT[..], &MAP].concat();
    let whole = program(&code, Some(&[("mprotect", ADDRESS), ("mmap", ADDRESS + 16)])).0;
    let mut seed = 1u64;
    for _ in 0..3000 {
        let mut bytes = whole.clone();
        for _ in 0..4 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let place = (seed >> 33) as usize;
            let place = if place % 3 == 0 { place % 128 } else { CODE_AT + place % (whole.len() - CODE_AT) };
            bytes[place] = (seed >> 24) as u8;
        }
        bytes.truncate(whole.len() - (seed >> 50) as usize % 64);
        Sites::find(&Bytes(bytes));
    }
}

#[test]
fn jumps_lead_there_and_back() {
    let (site, map, place) = (0x43_4910, 0x43_488c, 0x3f_f000);
    let (page, changes) = page([Some(site), Some(map)], place, 5).unwrap();
    assert_eq!(page.last(), Some(&5));
    let code = hook::code().unwrap();
    let target =
        |bytes: &[u8], next: usize| next.wrapping_add_signed(i32::from_le_bytes(bytes.try_into().unwrap()) as isize);
    for (number, (change, site)) in changes.iter().zip([site, map]).enumerate() {
        assert!(change.address == site && change.before[0] == 0xb8 && change.after[0] == 0xe9);
        assert_eq!(change.before[5..], change.after[5..]);
        assert_eq!(target(&change.after[1..5], site + 5), place + code.entries[number]);
        let exit = code.exits[number];
        assert_eq!(page[exit - 5], 0xe9);
        assert_eq!(target(&page[exit - 4..exit], place + exit), site + 7);
    }
    assert!(super::page([Some(site), None], place + (3 << 30), 5).is_none());
    assert!(super::page([None; 2], place, 5).is_none());
    assert_eq!(super::page([None, Some(map)], place, 5).unwrap().1.len(), 1);
}

#[test]
fn the_code_lies_where_nothing_else_does() {
    let mapped = [0x3f_e000..0x3f_f000, 0x40_0000..0x60_0000];
    let found: Vec<_> = places(&mapped, 0x40_0000).take(2).collect();
    assert_eq!(found, [0x3f_f000, 0x3f_d000]);
    assert_eq!(places(&[], 0x1_2000).collect::<Vec<_>>(), [0x1_1000, 0x1_0000]);
    assert_eq!(places(&[], 0x1000).count(), 0);
}
