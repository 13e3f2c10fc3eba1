//! The bandwidth of a Pod, as its annotations have it. Source: Kubernetes' `ExtractPodBandwidthResources`, CNI's
//! capability `bandwidth`.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

const INGRESS: &str = "kubernetes.io/ingress-bandwidth";
const EGRESS: &str = "kubernetes.io/egress-bandwidth";
/// Bits in a second.
const MIN: f64 = 1e3;
const MAX: f64 = 1e15;

/// The reason why an annotation is no bandwidth. The words are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BandwidthError {
    /// It is no quantity.
    #[error(
        "{0}: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    NoQuantity(&'static str),
    /// Nothing would come through.
    #[error("resource is unreasonably small (< 1kbit)")]
    Small,
    /// There is none so large.
    #[error("resource is unreasonably large (> 1Pbit)")]
    Large,
}

/// The argument of the capability `bandwidth`; `None` without an annotation.
///
/// # Errors
/// An annotation is no quantity, or not a reasonable one.
pub fn bandwidth(annotations: &HashMap<String, String>) -> Result<Option<Value>, BandwidthError> {
    let mut told = Map::new();
    for (annotation, rate, burst) in
        [(INGRESS, "ingressRate", "ingressBurst"), (EGRESS, "egressRate", "egressBurst")]
    {
        let Some(text) = annotations.get(annotation) else { continue };
        let bits = quantity(text).ok_or(BandwidthError::NoQuantity(annotation))?;
        if bits < MIN {
            return Err(BandwidthError::Small);
        }
        if bits > MAX {
            return Err(BandwidthError::Large);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between the bounds above"
        )]
        let bits = bits as u64;
        told.insert(rate.into(), json!(bits));
        // As containerd: as much at once as the plugin can say.
        told.insert(burst.into(), json!(u32::MAX));
    }
    Ok((!told.is_empty()).then_some(Value::Object(told)))
}

/// A quantity's value. Source: `resource.Quantity`.
fn quantity(text: &str) -> Option<f64> {
    const SUFFIXES: [(&str, f64); 13] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
    ];
    let with_suffix = SUFFIXES.iter().find_map(|(suffix, scale)| Some((text.strip_suffix(suffix)?, *scale)));
    let (number, scale) = with_suffix.unwrap_or((text, 1.0));
    let is_number = number.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first));
    number.parse::<f64>().ok().filter(|number| is_number && number.is_finite()).map(|number| number * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_bits_in_a_second() {
        let check = |ingress: &str, expect: Result<u64, &str>| {
            let annotations = HashMap::from([(INGRESS.to_owned(), ingress.to_owned())]);
            let rate = bandwidth(&annotations).map(|told| told.unwrap()["ingressRate"].as_u64().unwrap());
            let rate = rate.map_err(|error| error.to_string());
            match (&rate, &expect) {
                (Err(error), Err(expect)) => assert!(error.contains(expect), "{ingress}: {error}"),
                _ => assert_eq!(rate, expect.map_err(str::to_owned), "{ingress}"),
            }
        };
        check("10M", Ok(10_000_000));
        check("1Mi", Ok(1_048_576));
        check("5e6", Ok(5_000_000));
        check("1500", Ok(1_500));
        check("10", Err("unreasonably small"));
        check("2P", Err("unreasonably large"));
        check("fast", Err("quantities must match"));
        assert_eq!(bandwidth(&HashMap::new()), Ok(None));
    }
}
