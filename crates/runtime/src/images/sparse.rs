//! Files with holes: what lies between the pieces takes no room on disk.
//!
//! GNU's own format comes from the `tar` library with zeros in the holes; the three in PAX records are read here.
//! Source: GNU tar's manual, "Storing Sparse Files".

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use super::{ImageError, broken, invalid};

/// Most pieces of one file.
const PIECES_MAX: u64 = 1 << 20;
/// Zeros of this many bytes are a hole.
const HOLE_BYTES: usize = 64 << 10;
const BLOCK: u64 = 512;

/// A sparse file's description in PAX records.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sparse {
    /// The file's name, if its entry has another.
    pub(crate) name: Option<String>,
    /// Its size with the holes.
    pub(crate) size: u64,
    /// Offset and length of each piece; `None` if they stand before the data.
    map: Option<Vec<(u64, u64)>>,
}

impl Sparse {
    /// What the records say; `None` if they are not about a sparse file.
    ///
    /// # Errors
    /// They make no sense.
    pub(crate) fn read<'a>(
        records: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Option<Self>, ImageError> {
        let mut sparse = Self::default();
        let (mut is_sparse, mut is_version_1) = (false, false);
        let mut numbers = Vec::new();
        for (key, value) in records {
            let Some(key) = key.strip_prefix("GNU.sparse.") else { continue };
            let number = || value.parse::<u64>().map_err(|_| invalid("a sparse file that makes no sense"));
            is_sparse = true;
            match key {
                "name" => sparse.name = Some(value.to_owned()),
                "size" | "realsize" => sparse.size = number()?,
                "major" => is_version_1 = number()? == 1,
                "offset" | "numbytes" => numbers.push(number()?),
                "map" => {
                    let all: Result<Vec<u64>, _> = value.split(',').map(str::parse).collect();
                    numbers = all.map_err(|_| invalid("a sparse file that makes no sense"))?;
                }
                _ => {}
            }
        }
        if !is_version_1 {
            sparse.map = Some(pairs(&numbers));
        }
        Ok(is_sparse.then_some(sparse))
    }

    /// Writes the pieces to where they belong.
    ///
    /// # Errors
    /// The map leads out of the file, the data ends too early, or the disk failed.
    pub(crate) fn write(self, data: &mut impl Read, file: &mut File) -> Result<(), ImageError> {
        let map = match self.map {
            Some(map) => map,
            None => read_map(data)?,
        };
        for (offset, len) in map {
            if offset.checked_add(len).is_none_or(|end| end > self.size) {
                return Err(invalid("a sparse file's piece is outside of it"));
            }
            file.seek(SeekFrom::Start(offset)).map_err(broken)?;
            if io::copy(&mut data.by_ref().take(len), file).map_err(broken)? < len {
                return Err(invalid("a sparse file ends too early"));
            }
        }
        file.set_len(self.size).map_err(broken)
    }
}

fn pairs(numbers: &[u64]) -> Vec<(u64, u64)> {
    numbers.chunks_exact(2).filter_map(|pair| Some((*pair.first()?, *pair.get(1)?))).collect()
}

/// Version 1.0: decimal numbers on lines of their own, filled up to whole blocks.
fn read_map(data: &mut impl Read) -> Result<Vec<(u64, u64)>, ImageError> {
    let mut taken = 0;
    let mut number = || {
        let mut value: u64 = 0;
        loop {
            let mut byte = [0];
            data.read_exact(&mut byte).map_err(broken)?;
            taken += 1;
            match byte {
                [b'\n'] => return Ok(value),
                [digit @ b'0'..=b'9'] => {
                    let next = value.checked_mul(10).and_then(|it| it.checked_add(u64::from(digit - b'0')));
                    value = next.ok_or_else(|| invalid("a sparse file that makes no sense"))?;
                }
                _ => return Err(invalid("a sparse file that makes no sense")),
            }
        }
    };
    let count: u64 = number()?;
    if count > PIECES_MAX {
        return Err(invalid("a sparse file of too many pieces"));
    }
    let numbers = (0..count * 2).map(|_| number()).collect::<Result<Vec<u64>, ImageError>>()?;
    let padding = (BLOCK - taken % BLOCK) % BLOCK;
    io::copy(&mut data.by_ref().take(padding), &mut io::sink()).map_err(broken)?;
    Ok(pairs(&numbers))
}

/// Copies with holes for zeros.
pub(crate) fn copy_with_holes(data: &mut impl Read, file: &mut File) -> io::Result<()> {
    let mut buffer = vec![0; HOLE_BYTES];
    let mut len = 0;
    loop {
        let mut have = 0;
        while have < buffer.len() {
            match data.read(buffer.get_mut(have..).unwrap_or_default())? {
                0 => break,
                read => have += read,
            }
        }
        let piece = buffer.get(..have).unwrap_or_default();
        if piece.is_empty() {
            return file.set_len(len);
        }
        len += have as u64;
        match piece.iter().all(|byte| *byte == 0) {
            true => file.seek(SeekFrom::Start(len)).map(drop)?,
            false => file.write_all(piece)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn written(records: &[(&str, &str)], data: &[u8]) -> Result<Vec<u8>, ImageError> {
        let mut file = tempfile::tempfile().unwrap();
        let sparse = Sparse::read(records.iter().copied())?.unwrap();
        sparse.write(&mut &*data, &mut file)?;
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        Ok(bytes)
    }

    #[test]
    fn all_forms_of_a_sparse_file_give_the_same_file() {
        let mut version_1 = b"2\n2\n1\n5\n2\n".to_vec();
        version_1.resize(512, 0);
        version_1.extend_from_slice(b"abc");
        let expect = b"\0\0a\0\0bc\0".to_vec();
        let size = ("GNU.sparse.realsize", "8");
        let one = [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), size];
        assert_eq!(written(&one, &version_1).unwrap(), expect);
        let old_size = ("GNU.sparse.size", "8");
        assert_eq!(written(&[old_size, ("GNU.sparse.map", "2,1,5,2")], b"abc").unwrap(), expect);
        let pieces = [("GNU.sparse.offset", "2"), ("GNU.sparse.numbytes", "1")];
        let more = [("GNU.sparse.offset", "5"), ("GNU.sparse.numbytes", "2"), old_size];
        assert_eq!(written(&[&pieces[..], &more].concat(), b"abc").unwrap(), expect);
        assert_eq!(Sparse::read([("path", "x")].into_iter()).unwrap(), None);
    }

    #[test]
    fn a_map_that_lies_is_refused() {
        let one = [("GNU.sparse.major", "1"), ("GNU.sparse.realsize", "8")];
        for (name, records, data) in [
            ("outside", &[("GNU.sparse.size", "8"), ("GNU.sparse.map", "7,2")][..], &b"ab"[..]),
            ("overflow", &[("GNU.sparse.size", "8"), ("GNU.sparse.map", "18446744073709551615,2")], b"ab"),
            ("too short", &[("GNU.sparse.size", "8"), ("GNU.sparse.map", "0,2")], b"a"),
            ("no number", &[("GNU.sparse.size", "x")], b""),
            ("too many pieces", &one, b"99999999999\n"),
            ("no map", &one, b"x\n"),
        ] {
            assert!(written(records, data).is_err(), "{name}");
        }
    }

    #[test]
    fn zeros_take_no_room() {
        let mut file = tempfile::tempfile().unwrap();
        let data = [vec![0; 8 << 20], b"end".to_vec()].concat();
        copy_with_holes(&mut data.as_slice(), &mut file).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), data.len() as u64);
        assert!(metadata.blocks() * 512 < 1 << 20);
    }
}
