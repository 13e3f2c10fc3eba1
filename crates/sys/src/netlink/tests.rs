//! Messages and attributes that are whole, cut off, or lie about their length.

mod messages;

use super::*;

/// A message whose header says this length.
fn message(length: u32, kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(7_u32.to_ne_bytes());
    bytes.extend(payload);
    bytes
}

fn whole(kind: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    message(u32::try_from(HEADER_BYTES + payload.len()).unwrap(), kind, 0, sequence, payload)
}

fn sequences(bytes: &[u8]) -> Vec<(u32, usize)> {
    messages(bytes).map(|message| (message.sequence, message.payload.len())).collect()
}

#[test]
fn a_datagram_is_read_up_to_what_is_no_message() {
    let (one, two) = (whole(20, 1, b"abc"), whole(21, 2, b""));
    // Messages begin at multiples of four.
    let both = [&one[..], &[0], &two].concat();
    assert_eq!(sequences(&both), [(1, 3), (2, 0)]);
    for cut in 0..both.len() {
        let found = sequences(&both[..cut]);
        let expect: &[(u32, usize)] = if cut < one.len() { &[] } else { &[(1, 3)] };
        assert_eq!(found, expect, "cut at {cut}");
    }
    for (name, length) in [
        ("nothing", 0),
        ("less than a header", 15),
        ("more than there is", 17),
        ("much more", u32::MAX),
        ("almost as much", u32::MAX - 2),
    ] {
        assert_eq!(sequences(&message(length, 20, 0, 1, b"")), [], "{name}");
        let after = [&one[..], &[0], &message(length, 20, 0, 2, b"")].concat();
        assert_eq!(sequences(&after), [(1, 3)], "{name}, after a sound one");
    }
    assert_eq!(sequences(&message(16, 20, 0, 1, b"")), [(1, 0)], "a header alone");
}

#[test]
fn an_answer_is_an_acknowledgement_an_end_or_an_error() {
    let error = libc::NLMSG_ERROR as u16;
    let code = |code: i32| code.to_ne_bytes().to_vec();
    let told = |kind: u16, payload: &[u8]| {
        let bytes = whole(kind, 1, payload);
        let message = messages(&bytes).next().unwrap();
        match message.verdict() {
            Verdict::Answer => "answer".to_owned(),
            Verdict::Done => "done".to_owned(),
            Verdict::Failed(error) => format!("{:?}", error.raw_os_error()),
        }
    };
    assert_eq!(told(20, b"x"), "answer");
    assert_eq!(told(libc::NLMSG_DONE as u16, &code(0)), "done");
    assert_eq!(told(libc::NLMSG_DONE as u16, b""), "done");
    assert_eq!(told(error, &code(0)), "done");
    assert_eq!(told(error, &code(-libc::ENOENT)), format!("{:?}", Some(libc::ENOENT)));
    assert_eq!(
        told(error, &[code(-libc::EEXIST), vec![0; 16]].concat()),
        format!("{:?}", Some(libc::EEXIST))
    );
    // Of an error that is cut off nothing is known.
    assert_eq!(told(error, b""), "done");
    assert_eq!(told(error, &[0xff; 3]), "done");
    assert_eq!(told(error, &code(i32::MIN)), format!("{:?}", Some(i32::MIN)), "no number of the kernel's");
}

#[test]
fn attributes_are_read_up_to_what_is_none() {
    let mut encoder = Encoder::default();
    encoder.u8(1, 5).str(2, "name").nest(3, |inner| {
        inner.u32(1, 9).bytes(2, b"");
    });
    encoder.be32(4, 1).be64(5, 2);
    let bytes = encoder.into_bytes();
    let kinds = |bytes: &[u8]| attributes(bytes).map(|(kind, _)| kind).collect::<Vec<_>>();
    assert_eq!(kinds(&bytes), [1, 2, 3, 4, 5]);
    assert_eq!(find_attribute(&bytes, 1), Some(&[5][..]));
    assert_eq!(find_attribute(&bytes, 2).map(str_of).as_deref(), Some("name"));
    let inner = find_attribute(&bytes, 3).unwrap();
    assert_eq!(kinds(inner), [1, 2]);
    assert_eq!(find_attribute(inner, 1).and_then(u32_of), Some(9));
    assert_eq!(find_attribute(inner, 2), Some(&[][..]));
    assert_eq!(find_attribute(&bytes, 4), Some(&[0, 0, 0, 1][..]));
    assert_eq!(find_attribute(&bytes, 5), Some(&[0, 0, 0, 0, 0, 0, 0, 2][..]));
    assert_eq!(find_attribute(&bytes, 6), None);
    for cut in 0..bytes.len() {
        let found = kinds(&bytes[..cut]);
        assert!(found.len() < 5 && [1, 2, 3, 4, 5].starts_with(&found), "cut at {cut}: {found:?}");
    }
    for (name, bytes) in [
        ("no length", &[0, 0, 1, 0][..]),
        ("less than its own head", &[3, 0, 1, 0]),
        ("more than there is", &[9, 0, 1, 0, 1, 2, 3, 4]),
        ("the most that can be said", &[0xff, 0xff, 1, 0, 1, 2, 3, 4]),
        ("half a head", &[8, 0, 1]),
        ("one byte", &[8]),
    ] {
        assert_eq!(kinds(bytes), [0; 0], "{name}");
    }
    // Flags of a kind do not count.
    assert_eq!(kinds(&[4, 0, 1, 0xc0]), [1]);
}

#[test]
fn texts_end_at_their_first_zero() {
    for (bytes, expect) in [
        (&b"eth0\0"[..], "eth0"),
        (b"eth0", "eth0"),
        (b"eth0\0\0junk", "eth0"),
        (b"\0", ""),
        (b"", ""),
        (b"a\xffb\0", "a\u{fffd}b"),
    ] {
        assert_eq!(str_of(bytes), expect, "{}", bytes.escape_ascii());
    }
    assert_eq!(u32_of(&[1, 0, 0]), None);
    assert_eq!(u32_of(&[&7_u32.to_ne_bytes()[..], b"more"].concat()), Some(7));
}
