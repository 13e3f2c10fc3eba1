//! Has a container's image by its pull policy, with upstream's events and reasons.

use std::sync::Arc;

use controller::EventType;
use cri::{CriError, v1};
use k8s_openapi::api::core::v1::Pod;

use crate::container_config::sandbox_config;
use crate::context::Context;
use crate::worker::Outcome;

/// Images under this host name are made on the node: there is no registry to ask for newer ones.
const LOCAL_REGISTRY: &str = "knarr.local/";

/// Looks whether `image` is there, and pulls it if the policy says so.
pub(crate) async fn have_image(
    context: Arc<Context>,
    pod: Arc<Pod>,
    image: String,
    policy: String,
    cause: u64,
) -> Outcome {
    let start = context.clock.now();
    let container = container_of(&pod, &image);
    let event = |event_type, reason: &str, message| {
        context.event(&pod, container.as_deref(), event_type, reason, message);
    };
    let present = status(&context, &image).await;
    let must_ask = policy == "Always" && !image.starts_with(LOCAL_REGISTRY);
    let result = match present {
        Ok(Some(found)) if !must_ask => {
            event(
                EventType::Normal,
                "Pulled",
                format!("Container image \"{image}\" already present on machine"),
            );
            Ok(found.id)
        }
        Ok(None) if policy == "Never" => {
            let message = format!("Container image \"{image}\" is not present with pull policy of Never");
            event(EventType::Warning, "ErrImageNeverPull", message.clone());
            Err(("ErrImageNeverPull".to_owned(), message))
        }
        Ok(_) => {
            event(EventType::Normal, "Pulling", format!("Pulling image \"{image}\""));
            pull(&context, &pod, &image).await.map_err(|error| {
                event(EventType::Warning, "Failed", format!("Failed to pull image \"{image}\": {error}"));
                event(EventType::Warning, "Failed", "Error: ErrImagePull".into());
                ("ErrImagePull".to_owned(), error.to_string())
            })
        }
        Err(error) => {
            let message = format!("Failed to inspect image \"{image}\": {error}");
            event(EventType::Warning, "InspectFailed", message.clone());
            Err(("ImageInspectError".to_owned(), message))
        }
    };
    if result.is_ok() {
        context.span(cause, "image present", &pod, start, &image);
    }
    Outcome::Image(image, result)
}

fn container_of(pod: &Pod, image: &str) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let mut all = spec.init_containers.iter().flatten().chain(&spec.containers);
    all.find(|c| c.image.as_deref() == Some(image)).map(|c| c.name.clone())
}

fn image_spec(image: &str) -> v1::ImageSpec {
    v1::ImageSpec {
        image: image.to_owned(),
        user_specified_image: image.to_owned(),
        ..v1::ImageSpec::default()
    }
}

async fn status(context: &Context, image: &str) -> Result<Option<v1::Image>, CriError> {
    let request = v1::ImageStatusRequest { image: Some(image_spec(image)), verbose: false };
    match context.images.image_status(request).await {
        Ok(answer) => Ok(answer.image),
        Err(CriError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn pull(context: &Context, pod: &Pod, image: &str) -> Result<String, CriError> {
    let start = context.clock.now();
    let request = v1::PullImageRequest {
        image: Some(image_spec(image)),
        auth: None,
        sandbox_config: Some(sandbox_config(&context.config, pod, 0, "")),
    };
    let reference = context.images.pull_image(request).await?.image_ref;
    let took = context.clock.now().duration_since(start).as_millis();
    let took = format!("{}.{:03}s", took / 1000, took % 1000);
    let size = status(context, image).await?.map_or(0, |i| i.size);
    let message = format!(
        "Successfully pulled image \"{image}\" in {took} ({took} including waiting). Image size: {size} bytes."
    );
    context.event(pod, container_of(pod, image).as_deref(), EventType::Normal, "Pulled", message);
    Ok(reference)
}
