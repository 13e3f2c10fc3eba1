use super::*;
use crate::Encoder;

fn frames() -> Vec<Frame> {
    let headers = vec![("streamtype".to_owned(), "data".to_owned()), ("port".to_owned(), "80".to_owned())];
    vec![
        Frame::SynStream { stream: 1, fin: false, headers: headers.clone() },
        Frame::SynReply { stream: 1, fin: true, headers: Vec::new() },
        Frame::Data { stream: 1, fin: false, bytes: Bytes::from_static(b"hello") },
        Frame::Headers { stream: 1, fin: false, headers },
        Frame::Ping(7),
        Frame::WindowUpdate { stream: 0, bytes: 65_536 },
        Frame::Reset { stream: 3, status: 5 },
        Frame::Settings,
        Frame::Data { stream: 1, fin: true, bytes: Bytes::new() },
        Frame::GoAway { last_stream: 1, status: 0 },
    ]
}

/// Decodes `bytes` given in pieces of `size`, with the pieces of a data frame joined again.
fn decode(bytes: &[u8], size: usize) -> Result<Vec<Frame>, SpdyError> {
    let mut decoder = Decoder::default();
    let mut out: Vec<Frame> = Vec::new();
    for piece in bytes.chunks(size) {
        decoder.buffer().extend_from_slice(piece);
        while let Some(frame) = decoder.next()? {
            match (out.last_mut(), &frame) {
                (
                    Some(Frame::Data { stream, fin: last @ false, bytes }),
                    Frame::Data { stream: same, fin, bytes: more },
                ) if stream == same && !more.is_empty() => {
                    *bytes = [&bytes[..], more].concat().into();
                    *last = *fin;
                }
                _ => out.push(frame),
            }
        }
    }
    Ok(out)
}

#[test]
fn frames_survive_the_wire_in_any_cut() {
    let mut encoder = Encoder::default();
    let mut bytes = BytesMut::new();
    for frame in frames() {
        encoder.encode(&frame, &mut bytes).unwrap();
    }
    for size in [1, 2, 3, 7, 8, 64, bytes.len()] {
        assert_eq!(decode(&bytes, size).unwrap(), frames(), "pieces of {size}");
    }
}

#[test]
fn content_is_handed_on_before_its_frame_is_complete() {
    let mut decoder = Decoder::default();
    decoder.buffer().extend_from_slice(&[0, 0, 0, 5, FLAG_FIN, 0xff, 0xff, 0xff, b'a']);
    let first = Frame::Data { stream: 5, fin: false, bytes: Bytes::from_static(b"a") };
    assert_eq!(decoder.next().unwrap(), Some(first));
    assert_eq!(decoder.next().unwrap(), None);
}

#[test]
fn frames_of_unknown_type_are_passed_over() {
    let unknown = [0x80, 3, 0, 200, 0, 0, 0, 2, 1, 2];
    let ping = [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 9];
    assert_eq!(decode(&[&unknown[..], &ping].concat(), 100).unwrap(), [Frame::Ping(9)]);
}

#[test]
fn what_is_no_frame_is_refused() {
    let check = |bytes: &[u8], expect: &str| {
        assert_eq!(decode(bytes, 100).unwrap_err().to_string(), expect);
    };
    check(&[0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 9], "frame of SPDY version 2, not 3");
    check(&[0x80, 3, 0, 6, 0, 0, 0, 2, 0, 0], "malformed frame: it ends early");
    check(&[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff], "control frame of 16777215 bytes is too long");
    check(
        &[0x80, 3, 0, 2, 0, 0, 0, 6, 0, 0, 0, 1, 1, 1],
        "malformed header block: it cannot be decompressed",
    );
}

/// A control frame of this type.
fn control(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    let length = u8::try_from(body.len()).unwrap();
    [&[0x80, 3, 0, kind, flags, 0, 0, length][..], body].concat()
}

#[test]
fn a_control_frame_that_ends_before_its_fields_is_refused_at_every_length() {
    for (kind, fields) in [(1_u8, 10_u8), (2, 4), (3, 8), (6, 4), (7, 8), (8, 4), (9, 8)] {
        for length in 0..fields {
            let frame = control(kind, 0, &vec![0; usize::from(length)]);
            let error = decode(&frame, 100).unwrap_err();
            assert!(matches!(error, SpdyError::Malformed(_)), "type {kind}, {length} bytes: {error}");
        }
    }
    assert_eq!(decode(&control(4, 0, b""), 100).unwrap(), [Frame::Settings], "nothing in settings counts");
    let longer = control(6, 0, &[0, 0, 0, 1, 9, 9]);
    assert_eq!(decode(&longer, 100).unwrap(), [Frame::Ping(1)], "what follows the fields does not count");
}

#[test]
fn numbers_of_streams_have_31_bits_and_flags_one_that_counts() {
    let most = STREAM_MASK;
    for (bytes, expect) in [
        (control(3, 0, &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 5]), Frame::Reset { stream: most, status: 5 }),
        (control(7, 0, &[0x80, 0, 0, 1, 0, 0, 0, 2]), Frame::GoAway { last_stream: 1, status: 2 }),
        (
            control(9, 0, &[0x80, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]),
            Frame::WindowUpdate { stream: 1, bytes: most },
        ),
        (control(6, 0, &[0xff; 4]), Frame::Ping(u32::MAX)),
        (control(3, 0xff, &[0, 0, 0, 1, 0, 0, 0, 0]), Frame::Reset { stream: 1, status: 0 }),
        (
            vec![0x7f, 0xff, 0xff, 0xff, 0xfe, 0, 0, 1, b'x'],
            Frame::Data { stream: most, fin: false, bytes: Bytes::from_static(b"x") },
        ),
        (
            vec![0, 0, 0, 0, 0xff, 0, 0, 1, b'x'],
            Frame::Data { stream: 0, fin: true, bytes: Bytes::from_static(b"x") },
        ),
    ] {
        assert_eq!(decode(&bytes, 100).unwrap(), std::slice::from_ref(&expect), "{expect:?}");
    }
}

#[test]
fn the_end_of_a_stream_comes_with_the_last_byte_of_its_frame() {
    let mut decoder = Decoder::default();
    let mut take = |bytes: &[u8]| {
        decoder.buffer().extend_from_slice(bytes);
        let mut found = Vec::new();
        while let Some(frame) = decoder.next().unwrap() {
            let Frame::Data { fin, bytes, .. } = frame else { panic!("{frame:?}") };
            found.push((String::from_utf8(bytes.to_vec()).unwrap(), fin));
        }
        found
    };
    assert_eq!(take(&[0, 0, 0, 5, FLAG_FIN, 0, 0, 4]), []);
    assert_eq!(take(b"ab"), [("ab".to_owned(), false)]);
    assert_eq!(take(b""), []);
    assert_eq!(take(b"cd"), [("cd".to_owned(), true)]);
    assert_eq!(take(&[0, 0, 0, 5, 0, 0, 0, 0]), [(String::new(), false)]);
    assert_eq!(take(&[0, 0, 0, 5, FLAG_FIN, 0, 0, 0]), [(String::new(), true)]);
}

#[test]
fn the_longest_control_frame_is_read_and_no_longer_one() {
    let length = |bytes: usize| u32::try_from(bytes).unwrap().to_be_bytes();
    let head = |bytes: usize| [&[0x80, 3, 0, 4][..], &length(bytes)].concat();
    let whole = [head(CONTROL_BYTES_MAX), vec![0; CONTROL_BYTES_MAX]].concat();
    assert_eq!(decode(&whole, whole.len()).unwrap(), [Frame::Settings]);
    // It is refused before its content has come.
    let error = decode(&head(CONTROL_BYTES_MAX + 1), 100).unwrap_err();
    assert!(matches!(error, SpdyError::TooLong(65_537)), "{error}");
    // The version is looked at first.
    let error = decode(&[0x80, 4, 0, 4, 0, 0xff, 0xff, 0xff], 100).unwrap_err();
    assert!(matches!(error, SpdyError::Version(4)), "{error}");
    assert!(matches!(decode(&[0xff; 8], 100).unwrap_err(), SpdyError::Version(0x7fff)));
}

/// Flipped bits and cut ends: an error or other frames, and the same ones however the bytes are cut.
#[test]
fn whatever_comes_is_read_alike_in_every_cut() {
    let mut encoder = Encoder::default();
    let mut bytes = BytesMut::new();
    for frame in frames() {
        encoder.encode(&frame, &mut bytes).unwrap();
    }
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        let read = |size: usize| decode(&changed, size).map_err(|error| error.to_string());
        let whole = read(changed.len());
        for size in [1, 3, 16] {
            assert_eq!(read(size), whole, "bit {bit} in pieces of {size}");
        }
    }
    let all = frames().len();
    for cut in 0..bytes.len() {
        assert!(decode(&bytes[..cut], 100).unwrap().len() <= all, "cut at {cut}");
    }
}
