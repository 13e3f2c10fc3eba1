//! `$(NAME)` in values, commands and arguments. Source: `third_party/forked/golang/expansion` of upstream.

/// `text` with every `$(NAME)` that `lookup` knows replaced, and `$$` as one `$`.
pub(crate) fn expand(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let name = rest.strip_prefix('(').and_then(|r| r.split_once(')'));
        match name {
            Some((name, after)) => {
                match lookup(name) {
                    Some(value) => out.push_str(&value),
                    None => out.push_str(&format!("$({name})")),
                }
                rest = after;
            }
            None => out.push('$'),
        }
    }
    out.push_str(rest);
    out
}
