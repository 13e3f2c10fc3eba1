//! The gRPC health check. Source: `grpc.health.v1`, `pkg/probe/grpc` of upstream for the texts.

use std::time::Duration;

use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use super::error::GrpcError;

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
/// Why it is not well.
pub(crate) async fn check(host: &str, port: u16, service: &str, timeout: Duration) -> Result<(), GrpcError> {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let address = format!("{host}:{port}");
    let seconds = timeout.as_secs();
    let late = || GrpcError::Unconnected { address: address.clone(), seconds };
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    let deadline = tokio::time::Instant::now() + timeout;
    let connected = async {
        let channel = endpoint.connect().await.map_err(|_| late())?;
        let mut grpc = Grpc::new(channel);
        grpc.ready().await.map_err(|_| late())?;
        Ok(grpc)
    };
    let connected = tokio::time::timeout_at(deadline, connected).await;
    let mut grpc = connected.unwrap_or_else(|_| Err(late()))?;
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let request = Request::new(HealthCheckRequest { service: service.to_owned() });
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let asked = tokio::time::timeout_at(deadline, grpc.unary(request, path, codec)).await;
    let answer = asked.map_err(|_| GrpcError::Late(seconds))?;
    let answer = answer.map(tonic::Response::into_inner).map_err(|status| match status.code() {
        Code::Unimplemented => GrpcError::Unimplemented(status.message().to_owned()),
        Code::DeadlineExceeded => GrpcError::Late(seconds),
        code => GrpcError::Failed(code, status.message().to_owned()),
    })?;
    if answer.status == SERVING {
        return Ok(());
    }
    let name =
        usize::try_from(answer.status).ok().and_then(|at| STATUSES.get(at)).copied().unwrap_or("UNKNOWN");
    Err(GrpcError::Unhealthy(name))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::FutureExt;
    use futures::future::BoxFuture;
    use hyper::body::Incoming;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tonic::server::UnaryService;
    use tonic::{Response, Status};

    use super::*;

    /// A server of health checks whose services are what they are called.
    struct Health;

    impl UnaryService<HealthCheckRequest> for Health {
        type Response = HealthCheckResponse;
        type Future = BoxFuture<'static, Result<Response<HealthCheckResponse>, Status>>;

        fn call(&mut self, request: Request<HealthCheckRequest>) -> Self::Future {
            let answer =
                |status| std::future::ready(Ok(Response::new(HealthCheckResponse { status }))).boxed();
            match request.into_inner().service.as_str() {
                "" | "well" => answer(SERVING),
                "sick" => answer(2),
                "silent" => std::future::pending().boxed(),
                _ => std::future::ready(Err(Status::not_found("unknown service"))).boxed(),
            }
        }
    }

    async fn answer(
        request: hyper::Request<Incoming>,
        has_health: bool,
    ) -> http::Response<tonic::body::Body> {
        if has_health && request.uri().path() == "/grpc.health.v1.Health/Check" {
            return tonic::server::Grpc::new(ProstCodec::default()).unary(Health, request).await;
        }
        Status::unimplemented("unknown service grpc.health.v1.Health").into_http()
    }

    async fn serve(has_health: bool) -> u16 {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answering =
                    move |request| async move { Ok::<_, Infallible>(answer(request, has_health).await) };
                let service = hyper::service::service_fn(answering);
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
            }
        });
        port
    }

    async fn check_service(port: u16, service: &str, expect: Result<(), &str>) {
        // Long enough that a busy machine does not matter, except for what never answers.
        let timeout = Duration::from_secs(if service == "silent" { 5 } else { 60 });
        let found = check("127.0.0.1", port, service, timeout).await.map_err(|error| error.to_string());
        assert_eq!(found, expect.map_err(str::to_owned), "{service}");
    }

    #[tokio::test]
    async fn a_server_says_how_each_service_is() {
        let port = serve(true).await;
        check_service(port, "", Ok(())).await;
        check_service(port, "well", Ok(())).await;
        check_service(port, "sick", Err("service unhealthy (responded with \"NOT_SERVING\")")).await;
        let unknown = "health rpc probe failed: rpc error: code = NotFound desc = unknown service";
        check_service(port, "other", Err(unknown)).await;
        check_service(port, "silent", Err("timeout: health rpc did not complete within 5s")).await;
    }

    #[tokio::test]
    async fn a_server_without_health_checks_is_unhealthy() {
        let port = serve(false).await;
        let unknown = "this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service grpc.health.v1.Health";
        check_service(port, "", Err(unknown)).await;
    }
}
