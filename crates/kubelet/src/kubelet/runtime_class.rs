//! Which runtime handler a Pod's RuntimeClass names. Source: `pkg/kubelet/runtimeclass`.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::node::v1::RuntimeClass;

use crate::context::Context;

/// There is no RuntimeClass of that name; the words are upstream's.
#[derive(Debug, thiserror::Error)]
#[error("runtimeclass.node.k8s.io {0:?} not found")]
pub(crate) struct NoRuntimeClass(String);

/// The handler; empty for the runtime's default.
///
/// # Errors
/// There is no such RuntimeClass.
pub(crate) async fn handler(context: &Context, pod: &Pod) -> Result<String, NoRuntimeClass> {
    let name = pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.as_deref()).unwrap_or_default();
    if name.is_empty() {
        return Ok(String::new());
    }
    let classes = context.informers.informer::<RuntimeClass>();
    classes.synced().await;
    let missing = || NoRuntimeClass(name.to_owned());
    classes.get(name).map(|class| class.handler.clone()).ok_or_else(missing)
}
