use super::*;

fn headers(pairs: &[(&str, &str)]) -> Headers {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn blocks_of_a_connection_are_read_back_in_order() {
    let (mut deflater, mut inflater) = (Deflater::new(), Inflater::new());
    let long = "x".repeat(20_000);
    for expect in [
        headers(&[("streamtype", "error"), ("port", "80"), ("requestid", "0")]),
        headers(&[]),
        headers(&[("accept", "a"), ("accept", "b"), ("other", &long)]),
        headers(&[("streamtype", "data"), ("port", "80"), ("requestid", "0")]),
    ] {
        let block = deflater.write(&expect).unwrap();
        assert_eq!(inflater.read(&block).unwrap(), expect);
    }
}

/// As peers that compress hard do it.
#[test]
fn a_block_that_names_the_dictionary_is_read() {
    let mut compress = Compress::new(Compression::best(), true);
    compress.set_dictionary(&DICTIONARY).unwrap();
    let mut block = Vec::with_capacity(1024);
    let plain = render(&headers(&[("streamtype", "stdin")]));
    compress.compress_vec(&plain, &mut block, FlushCompress::Sync).unwrap();
    assert_eq!(&block[..6], [0x78, 0xf9, 0xe3, 0xc6, 0xa7, 0xc2], "the dictionary is named");
    assert_eq!(Inflater::new().read(&block).unwrap(), headers(&[("streamtype", "stdin")]));
}

#[test]
fn blocks_that_expand_without_end_are_refused() {
    let mut compress = Compress::new(Compression::best(), true);
    let mut block = Vec::with_capacity(64 * 1024);
    compress.compress_vec(&vec![0; 8 << 20], &mut block, FlushCompress::Sync).unwrap();
    assert!(block.len() < 16 * 1024);
    assert!(Inflater::new().read(&block).is_err());
}

#[test]
fn malformed_blocks_are_refused() {
    for block in [&[0u8, 0, 0, 1][..], &[0, 0, 0, 1, 0, 0, 0, 9, b'a'], &[0xff; 4], &[]] {
        assert!(parse(block).is_err(), "{block:?}");
    }
    assert!(Inflater::new().read(b"no zlib").is_err());
}

fn block(parts: &[&[u8]]) -> Vec<u8> {
    let mut block = Vec::new();
    for part in parts {
        block.extend_from_slice(&u32::try_from(part.len()).unwrap().to_be_bytes());
        block.extend_from_slice(part);
    }
    block
}

/// Source: SPDY/3 draft, section 2.6.10; `parseHeaderValueBlock` of `moby/spdystream`.
#[test]
fn names_and_values_are_read_as_they_are_written() {
    for (name, count, parts, expect) in [
        ("none", 0_u32, &[][..], &[][..]),
        ("one", 1, &[&b"port"[..], b"80"], &[("port", "80")][..]),
        ("capitals of names do not count", 1, &[b"StreamType", b"Data"], &[("streamtype", "Data")]),
        ("several values", 1, &[b"accept", b"a\0b\0c"], &[("accept", "a"), ("accept", "b"), ("accept", "c")]),
        ("no value", 1, &[b"port", b""], &[("port", "")]),
        ("empty values", 1, &[b"port", b"\0"], &[("port", ""), ("port", "")]),
        ("no name", 1, &[b"", b"x"], &[("", "x")]),
        ("a name that comes twice", 2, &[b"a", b"1", b"a", b"2"], &[("a", "1"), ("a", "2")]),
        ("more than it says", 1, &[b"a", b"1", b"b", b"2"], &[("a", "1")]),
        ("other letters", 1, &[b"a", "\u{e9}".as_bytes()], &[("a", "\u{e9}")]),
    ] {
        let bytes = [&count.to_be_bytes()[..], &block(parts)].concat();
        assert_eq!(parse(&bytes).unwrap(), headers(expect), "{name}");
    }
    for (name, count, parts) in [
        ("fewer than it says", 2_u32, &[&b"a"[..], b"1"][..]),
        ("a name without a value", 1, &[b"a"]),
        ("many more than there can be", u32::MAX, &[b"a", b"1"]),
        ("a name that is no text", 1, &[b"\xff", b"1"]),
        ("a value that is no text", 1, &[b"a", b"\xc3"]),
    ] {
        let bytes = [&count.to_be_bytes()[..], &block(parts)].concat();
        assert!(matches!(parse(&bytes), Err(SpdyError::HeaderBlock(_))), "{name}");
    }
    let long = [&1_u32.to_be_bytes()[..], &u32::MAX.to_be_bytes(), b"a"].concat();
    assert!(parse(&long).is_err(), "a length beyond the end");
}

#[test]
fn values_of_one_name_are_joined_whatever_stands_between_them() {
    let written = render(&headers(&[("a", "1"), ("b", "2"), ("a", "3")]));
    assert_eq!(parse(&written).unwrap(), headers(&[("a", "1"), ("a", "3"), ("b", "2")]));
}

/// A peer that has lost its place in the stream of blocks cannot be understood any more.
#[test]
fn a_block_that_is_missing_is_noticed() {
    let (mut deflater, mut inflater) = (Deflater::new(), Inflater::new());
    let pairs = [("streamtype", "data"), ("port", "80"), ("requestid", "0")];
    let blocks: Vec<Vec<u8>> = (0..3).map(|_| deflater.write(&headers(&pairs)).unwrap()).collect();
    assert!(inflater.read(&blocks[1]).is_err(), "without the first there is no dictionary");
    let mut inflater = Inflater::new();
    inflater.read(&blocks[0]).unwrap();
    assert!(inflater.read(&blocks[0]).is_err(), "it began before");
    // What ends early is no block, though more may come: each frame has all of its own, but for the mark at its end.
    let (mut broken, first) = (0, &blocks[0]);
    for cut in 0..first.len() {
        match Inflater::new().read(&first[..cut]) {
            Ok(found) => assert_eq!(found, headers(&pairs), "cut at {cut}"),
            Err(_) => broken += 1,
        }
    }
    assert!(broken > first.len() / 2, "{broken} of {}", first.len());
}

#[test]
fn a_block_of_the_longest_kind_is_read_and_no_longer_one() {
    let value = |bytes: usize| "x".repeat(bytes);
    let bytes = BLOCK_BYTES_MAX - STEP_BYTES;
    for (bytes, expect) in [(bytes, true), (BLOCK_BYTES_MAX + STEP_BYTES, false)] {
        let block = Deflater::new().write(&headers(&[("a", &value(bytes))])).unwrap();
        assert_eq!(Inflater::new().read(&block).is_ok(), expect, "{bytes}");
    }
}
