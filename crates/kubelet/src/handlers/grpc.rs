//! The gRPC health check. Source: `grpc.health.v1`, `pkg/probe/grpc` of upstream for the texts.

use std::time::Duration;

use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

/// `HealthCheckRequest`.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// `HealthCheckResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// Names of `ServingStatus`.
const STATUSES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
const SERVING: i32 = 1;

/// Asks the server at `host:port` how `service` is.
///
/// # Errors
/// A text in upstream's words.
pub(crate) async fn check(host: &str, port: u16, service: &str, timeout: Duration) -> Result<(), String> {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let address = format!("{host}:{port}");
    let late = || {
        format!(
            "timeout: failed to connect service \"{address}\" within {}s: context deadline exceeded",
            timeout.as_secs()
        )
    };
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| error.to_string())?;
    let asked = async {
        let channel = endpoint.connect().await.map_err(|_| late())?;
        let mut grpc = Grpc::new(channel);
        grpc.ready().await.map_err(|_| late())?;
        let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
        let request = Request::new(HealthCheckRequest { service: service.to_owned() });
        let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
        let answer = grpc.unary(request, path, codec).await;
        answer.map(tonic::Response::into_inner).map_err(|status| match status.code() {
            Code::Unimplemented => {
                format!(
                    "this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
                    status.message()
                )
            }
            Code::DeadlineExceeded => {
                format!("timeout: health rpc did not complete within {}s", timeout.as_secs())
            }
            code => {
                format!("health rpc probe failed: rpc error: code = {code:?} desc = {}", status.message())
            }
        })
    };
    let answer = tokio::time::timeout(timeout, asked).await.unwrap_or_else(|_| Err(late()))?;
    if answer.status == SERVING {
        return Ok(());
    }
    let name = usize::try_from(answer.status).ok().and_then(|at| STATUSES.get(at)).unwrap_or(&"UNKNOWN");
    Err(format!("service unhealthy (responded with \"{name}\")"))
}
