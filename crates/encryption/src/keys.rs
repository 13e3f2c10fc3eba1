//! The configuration that a cluster has which was given none: Secrets under a key of its own.
//!
//! It is upstream's format, so that it can be edited by upstream's instructions, or taken to a kube-apiserver. Why
//! secretbox: `docs/adr/0008-encryption-by-default.md`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::cipher::{SEED_BYTES, random};
use crate::errors::SealError;

/// A new configuration with a new key. The trailing identity provider reads what was written before there was one.
///
/// # Errors
/// If the operating system gives no randomness.
pub fn generate() -> Result<String, SealError> {
    let secret = random::<SEED_BYTES>()?;
    // The name says which key it is: another cluster's key has another name.
    let digest = ring::digest::digest(&ring::digest::SHA256, &secret);
    let name: String = digest.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    Ok(format!(
        "# The key that Secrets are stored under. Without it they cannot be read: keep a copy.
# To change it, put a new key first, run `knarr secrets reencrypt`, then drop the old key.
apiVersion: {version}
kind: {kind}
resources:
- resources:
  - secrets
  providers:
  - secretbox:
      keys:
      - name: key-{name}
        secret: {secret}
  - identity: {{}}
",
        version = crate::config::API_VERSION,
        kind = crate::config::KIND,
        secret = STANDARD.encode(secret),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn a_generated_configuration_is_sound_and_has_a_key_of_its_own() {
        let (one, two) = (generate().unwrap(), generate().unwrap());
        assert_ne!(one, two);
        let config = Config::parse(one.as_bytes(), true).unwrap();
        let providers = &config.resources[0].providers;
        assert!(providers[0].secretbox.is_some() && providers[1].identity.is_some());
    }
}
