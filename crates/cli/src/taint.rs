//! Taints on the command line: `key=value:Effect`, `key:Effect`. Source: `ParseTaints` of upstream's `pkg/util/taints`,
//! without those that are taken away.

use machinery::taints::{EFFECTS, Flaw, Taint};

/// The first of these that is none, and why.
pub(crate) fn first_flaw<'t>(taints: impl IntoIterator<Item = &'t str>) -> Option<(&'t str, String)> {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    taints.into_iter().find_map(|text| {
        let part = match parts(text) {
            Ok(part) if seen.contains(&part) => "must not be there twice with one effect".to_owned(),
            Ok(part) => {
                seen.push(part);
                return None;
            }
            Err(flaw) => flaw,
        };
        Some((text, part))
    })
}

/// Key and effect.
fn parts(text: &str) -> Result<(&str, &str), String> {
    let taint = Taint::parse(text).map_err(|mut flaws| match flaws.pop() {
        Some(Flaw::Name(why)) => format!("must have a sound key and value: {why}"),
        _ => format!("must be KEY=VALUE:EFFECT with an effect of {}", EFFECTS.join(", ")),
    })?;
    Ok((taint.key, taint.effect))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: `TestParseTaints` of upstream's `pkg/util/taints`.
    #[test]
    fn taints_are_those_that_upstream_takes() {
        let long = format!("{}:NoSchedule", "a".repeat(64));
        for (name, taints, is_sound) in [
            ("nothing", &[""][..], false),
            ("no effect", &["foo=abc"], false),
            ("several =", &["foo=abc=xyz:NoSchedule"], false),
            ("several :", &["foo=abc:xyz:NoSchedule"], false),
            ("a key alone", &["foo"], false),
            ("other characters", &["foo=nospecialchars%^@:NoSchedule"], false),
            ("other letters", &["foo=Tama-nui-te-r\u{101}.is.M\u{101}ori.sun:NoSchedule"], false),
            ("backslashes", &["foo=\\backslashes\\are\\bad:NoSchedule"], false),
            ("a dash first", &["foo=-starts-with-dash:NoSchedule"], false),
            ("a dash last", &["foo=ends-with-dash-:NoSchedule"], false),
            ("a dot first", &["foo=.starts.with.dot:NoSchedule"], false),
            ("a dot last", &["foo=ends.with.dot.:NoSchedule"], false),
            ("another effect", &["foo=abc:invalid_effect"], false),
            ("an effect that goes", &["foo:NoSchedule-"], false),
            ("twice", &["foo=abc:NoSchedule", "foo=abc:NoSchedule"], false),
            ("twice with another value", &["foo=abc:NoSchedule", "foo=xyz:NoSchedule"], false),
            ("too long", &[&long], false),
            ("no key", &["=abc:NoSchedule"], false),
            ("only an effect", &[":NoSchedule"], false),
            ("a key that is none", &["a/b/c:NoSchedule"], false),
            ("with another effect", &["foo=abc:NoSchedule", "foo=abc:NoExecute"], true),
            (
                "several",
                &["foo=abc:NoSchedule", "bar=abc:NoSchedule", "baz:NoSchedule", "foobar=:PreferNoSchedule"],
                true,
            ),
            ("a domain", &["node-role.kubernetes.io/control-plane:NoSchedule"], true),
            ("none", &[], true),
        ] {
            let flaw = first_flaw(taints.iter().copied());
            assert_eq!(flaw.is_none(), is_sound, "{name}: {flaw:?}");
            // The last one is to blame in each row.
            assert!(flaw.is_none_or(|(text, _)| Some(&text) == taints.last()), "{name}");
        }
    }
}
