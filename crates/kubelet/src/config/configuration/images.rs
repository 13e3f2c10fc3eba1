//! What a configuration says about images: when they are pulled, who may use them, when they go.
//!
//! The messages are upstream's. Source: `pkg/kubelet/apis/config/{v1beta1,validation}` of upstream.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::images::{Allowed, PullRate, Verification};
use super::{Config, Fields, set};

/// Upstream's default of `nodeStatusMaxImages`.
pub(in crate::config) const NODE_STATUS_MAX_IMAGES: u32 = 50;

impl Config {
    pub(super) fn apply_images(&mut self, fields: &mut Fields<'_>) {
        self.apply_image_gc(fields);
        self.apply_pulls(fields);
        self.apply_verification(fields);
        match fields.integer("nodeStatusMaxImages", i64::MIN) {
            Some(most @ ..-1) => fields
                .errors
                .push(format!("nodeStatusMaxImages (--node-status-max-images) {most} must be -1 or greater")),
            Some(most) => self.node_status_max_images = u32::try_from(most).ok(),
            None => {}
        }
    }

    fn apply_image_gc(&mut self, fields: &mut Fields<'_>) {
        let mut policy = self.image_gc.clone();
        let mut percent = |name: &str, flag: &str, before: u8| {
            let Some(given) = fields.integer(name, i64::MIN) else { return before };
            u8::try_from(given).ok().filter(|percent| *percent <= 100).unwrap_or_else(|| {
                fields.errors.push(format!("{name} ({flag}) {given} must be between 0 and 100, inclusive"));
                before
            })
        };
        policy.high_threshold_percent = percent(
            "imageGCHighThresholdPercent",
            "--image-gc-high-threshold",
            policy.high_threshold_percent,
        );
        policy.low_threshold_percent =
            percent("imageGCLowThresholdPercent", "--image-gc-low-threshold", policy.low_threshold_percent);
        if policy.low_threshold_percent >= policy.high_threshold_percent {
            fields.errors.push(format!(
                "imageGCLowThresholdPercent (--image-gc-low-threshold) {} must be less than \
                 imageGCHighThresholdPercent (--image-gc-high-threshold) {}",
                policy.low_threshold_percent, policy.high_threshold_percent
            ));
        }
        set(&mut policy.minimum_age, fields.time("imageMinimumGCAge"));
        set(&mut policy.maximum_age, fields.duration("imageMaximumGCAge"));
        if !policy.maximum_age.is_zero() && policy.maximum_age <= policy.minimum_age {
            fields.errors.push(format!(
                "imageMaximumGCAge {} must be greater than imageMinimumGCAge {}",
                go(policy.maximum_age),
                go(policy.minimum_age)
            ));
        }
        self.image_gc = policy;
    }

    fn apply_pulls(&mut self, fields: &mut Fields<'_>) {
        let most = fields.integer("maxParallelImagePulls", i64::MIN);
        let in_series = fields.flag("serializeImagePulls");
        if let Some(most @ ..1) = most {
            fields.errors.push(format!("maxParallelImagePulls {most} must be a positive number"));
        }
        if in_series == Some(true) && most.is_some_and(|most| most > 1) {
            fields.errors.push(
                "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls \
                 (--serialize-image-pulls) is set to false"
                    .into(),
            );
        }
        let most = most.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
        self.image_pulls.at_once = match (in_series, most) {
            (None, None) => self.image_pulls.at_once,
            (Some(true), _) => Some(1),
            (_, most) => most,
        };
        let before = self.image_pulls.rate;
        let mut number = |name: &str, flag: &str| {
            let given = fields.integer(name, i64::MIN)?;
            if given < 0 {
                fields.errors.push(format!("{name} ({flag}) {given} must not be a negative number"));
            }
            Some(u32::try_from(given).unwrap_or(u32::MAX))
        };
        let per_second = number("registryPullQPS", "--registry-qps");
        // Zero is what is not said.
        let burst = number("registryBurst", "--registry-burst").filter(|burst| *burst > 0);
        let before = before.unwrap_or(PullRate { per_second: 0, burst: 10 });
        let rate = PullRate {
            per_second: per_second.unwrap_or(before.per_second),
            burst: burst.unwrap_or(before.burst),
        };
        self.image_pulls.rate = (rate.per_second > 0).then_some(rate);
    }

    fn apply_verification(&mut self, fields: &mut Fields<'_>) {
        let patterns = fields.texts("preloadedImagesVerificationAllowlist").unwrap_or_default();
        let policy = fields.text("imagePullCredentialsVerificationPolicy").filter(|it| !it.is_empty());
        let policy = policy.unwrap_or_else(|| self.image_pulls.verification.name().to_owned());
        if !patterns.is_empty() && policy != "NeverVerifyAllowlistedImages" {
            fields.errors.push(
                "can't set `preloadedImagesVerificationAllowlist` if `imagePullCredentialsVertificationPolicy` \
                 is not \"NeverVerifyAllowlistedImages\""
                    .into(),
            );
        }
        self.image_pulls.verification = match policy.as_str() {
            "NeverVerify" => Verification::NeverVerify,
            "NeverVerifyPreloadedImages" => Verification::NeverVerifyPreloadedImages,
            "AlwaysVerify" => Verification::AlwaysVerify,
            "NeverVerifyAllowlistedImages" => match patterns.iter().map(|it| it.parse::<Allowed>()).collect()
            {
                Ok(allowed) => Verification::NeverVerifyAllowlistedImages(allowed),
                Err(error) => {
                    fields.errors.push(format!(
                        "invalid image pattern in `preloadedImagesVerificationAllowlist`: {error}"
                    ));
                    return;
                }
            },
            other => {
                fields.errors.push(format!(
                    "option {other:?} specified for imagePullCredentialsVerificationPolicy. Valid options are \
                     \"NeverVerify\", \"NeverVerifyPreloadedImages\", \"NeverVerifyAllowlistedImages\" or \
                     \"AlwaysVerify\""
                ));
                return;
            }
        };
    }

    /// What `/configz` shows of it.
    pub(super) fn shown_images(&self) -> Value {
        let (gc, pulls) = (&self.image_gc, &self.image_pulls);
        let rate = pulls.rate.unwrap_or(PullRate { per_second: 0, burst: 10 });
        let mut shown = json!({
            "imageMinimumGCAge": go(gc.minimum_age),
            "imageMaximumGCAge": go(gc.maximum_age),
            "imageGCHighThresholdPercent": gc.high_threshold_percent,
            "imageGCLowThresholdPercent": gc.low_threshold_percent,
            "serializeImagePulls": pulls.at_once == Some(1),
            "registryPullQPS": rate.per_second,
            "registryBurst": rate.burst,
            "imagePullCredentialsVerificationPolicy": pulls.verification.name(),
            "nodeStatusMaxImages": self.node_status_max_images.map_or(-1, i64::from),
        });
        if let (Some(shown), Some(most @ 2..)) = (shown.as_object_mut(), pulls.at_once) {
            shown.insert("maxParallelImagePulls".into(), most.into());
        }
        shown
    }
}

fn go(duration: Duration) -> String {
    schema::duration::format(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::tests::applied;
    use super::*;

    #[test]
    fn what_is_said_about_images_counts() {
        let config = applied(
            "{imageGCHighThresholdPercent: 70, imageGCLowThresholdPercent: 60, imageMinimumGCAge: 5m, \
              imageMaximumGCAge: 24h, serializeImagePulls: false, registryPullQPS: 1, nodeStatusMaxImages: -1, \
              imagePullCredentialsVerificationPolicy: AlwaysVerify}",
        )
        .unwrap();
        assert_eq!((config.image_gc.high_threshold_percent, config.image_gc.low_threshold_percent), (70, 60));
        assert_eq!(config.image_gc.minimum_age, Duration::from_secs(300));
        assert_eq!(config.image_gc.maximum_age, Duration::from_secs(86400));
        assert_eq!(config.image_pulls.at_once, None);
        assert_eq!(config.image_pulls.rate, Some(PullRate { per_second: 1, burst: 10 }));
        assert_eq!(config.image_pulls.verification, Verification::AlwaysVerify);
        assert_eq!(config.node_status_max_images, None);
        for (field, expect) in [
            ("imageMaximumGCAge", json!("24h0m0s")),
            ("serializeImagePulls", json!(false)),
            ("nodeStatusMaxImages", json!(-1)),
            ("registryBurst", json!(10)),
        ] {
            let shown = config.shown_images();
            assert_eq!(shown[field], expect, "{field}");
        }
    }

    #[test]
    fn pulls_at_once_follow_from_two_fields_as_upstreams() {
        for (yaml, expect) in [
            ("{}", Some(1)),
            ("{serializeImagePulls: true}", Some(1)),
            ("{serializeImagePulls: false}", None),
            ("{maxParallelImagePulls: 1}", Some(1)),
            ("{maxParallelImagePulls: 3}", Some(3)),
            ("{serializeImagePulls: false, maxParallelImagePulls: 3}", Some(3)),
        ] {
            assert_eq!(applied(yaml).unwrap().image_pulls.at_once, expect, "{yaml}");
        }
        let defaults = applied("{imageMinimumGCAge: 0s, registryBurst: 0, registryPullQPS: 0}").unwrap();
        assert_eq!(defaults.image_gc, crate::config::ImageGcPolicy::default());
        assert_eq!(defaults.image_pulls.rate, None, "no pulls a second is any number of them");
    }

    #[test]
    fn what_cannot_be_said_about_images_is_refused_in_upstreams_words() {
        for (yaml, expect) in [
            (
                "{imageGCHighThresholdPercent: 101}",
                "imageGCHighThresholdPercent (--image-gc-high-threshold) 101 must be between 0 and 100, inclusive",
            ),
            (
                "{imageGCLowThresholdPercent: -1}",
                "imageGCLowThresholdPercent (--image-gc-low-threshold) -1 must be between 0 and 100, inclusive",
            ),
            (
                "{imageGCHighThresholdPercent: 80}",
                "imageGCLowThresholdPercent (--image-gc-low-threshold) 80 must be less than \
                 imageGCHighThresholdPercent (--image-gc-high-threshold) 80",
            ),
            ("{imageMaximumGCAge: 2m}", "imageMaximumGCAge 2m0s must be greater than imageMinimumGCAge 2m0s"),
            ("{imageMinimumGCAge: -1s}", "imageMinimumGCAge: \"-1s\" must not be negative"),
            ("{maxParallelImagePulls: 0}", "maxParallelImagePulls 0 must be a positive number"),
            (
                "{serializeImagePulls: true, maxParallelImagePulls: 2}",
                "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls",
            ),
            ("{registryBurst: -1}", "registryBurst (--registry-burst) -1 must not be a negative number"),
            (
                "{imagePullCredentialsVerificationPolicy: Sometimes}",
                "option \"Sometimes\" specified for imagePullCredentialsVerificationPolicy. Valid options are",
            ),
            (
                "{preloadedImagesVerificationAllowlist: [r.example/a]}",
                "can't set `preloadedImagesVerificationAllowlist`",
            ),
            (
                "{imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages, \
                  preloadedImagesVerificationAllowlist: ['*']}",
                "invalid image pattern in `preloadedImagesVerificationAllowlist`: not a valid wildcard pattern",
            ),
            (
                "{nodeStatusMaxImages: -2}",
                "nodeStatusMaxImages (--node-status-max-images) -2 must be -1 or greater",
            ),
        ] {
            let error = applied(yaml).map(|_| ()).unwrap_err();
            assert!(error.contains(expect), "{yaml}: {error}");
        }
    }
}
