//! The listening side: questions in, answers out, and the task that keeps the zone fresh.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use controller::Informers;
use controller::trace::Reporter;
use hickory_proto::op::{Metadata, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record as WireRecord, RecordType};
use hickory_server::net::runtime::Time;
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::MessageResponseBuilder;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::sync::{PoisonError, RwLock};
use tokio::net::{TcpListener, UdpSocket};

use crate::answer::{Answer, Data, QueryType, Record, answer};
use crate::forward;
use crate::zone::Zone;

/// How long clients may keep an answer. Source: CoreDNS' kubernetes plugin.
const TTL_SECONDS: u32 = 5;
/// A TCP client that says nothing for this long is cut off.
const TCP_IDLE_MAX: Duration = Duration::from_secs(10);
const TCP_BACKLOG_ANSWERS_MAX: usize = 64;

/// How the server is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens, for UDP and TCP.
    pub listen: Vec<SocketAddr>,
    /// `cluster.local`
    pub domain: String,
    /// Where other names are asked; if there is none they are refused.
    pub resolvers: Vec<SocketAddr>,
}

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// The address is taken, or not one of this host's.
    #[error("listen for DNS on {address}")]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    /// The addresses it got, as `Config::listen` has them.
    pub addresses: Vec<SocketAddr>,
}

/// Starts the server; returns when it listens and knows the cluster's Services.
///
/// # Errors
/// If an address cannot be listened on.
pub async fn serve(
    config: Config,
    informers: Informers,
    reporter: Reporter,
    tasks: &Tasks,
) -> Result<Server, DnsError> {
    let zone = Arc::new(RwLock::new(Arc::new(Zone { domain: config.domain.clone(), ..Zone::default() })));
    let handler = Handler { zone: zone.clone(), resolvers: config.resolvers.clone() };
    let mut server = hickory_server::Server::new(handler);
    let mut addresses = Vec::new();
    for address in config.listen {
        let failed = |source| DnsError::Listen { address, source };
        let socket = UdpSocket::bind(address).await.map_err(failed)?;
        let bound = socket.local_addr().map_err(failed)?;
        let listener = TcpListener::bind(bound).await.map_err(failed)?;
        server.register_socket(socket);
        server.register_listener(listener, TCP_IDLE_MAX, TCP_BACKLOG_ANSWERS_MAX);
        addresses.push(bound);
    }
    tasks.spawn("dns", async move {
        if let Err(error) = server.block_until_done().await {
            tracing::error!(%error, "the DNS server ended");
        }
    });
    informers.informer::<Service>().synced().await;
    informers.informer::<EndpointSlice>().synced().await;
    refresh(&config.domain, &informers, &zone);
    tasks.spawn("dns zone", keep_fresh(config.domain, informers, zone, reporter));
    Ok(Server { addresses })
}

async fn keep_fresh(domain: String, informers: Informers, zone: Arc<RwLock<Arc<Zone>>>, reporter: Reporter) {
    let mut services = informers.informer::<Service>().subscribe();
    let mut slices = informers.informer::<EndpointSlice>().subscribe();
    loop {
        let cause = tokio::select! {
            changes = services.next() => changes.iter().map(|change| change.revision).max(),
            changes = slices.next() => changes.iter().map(|change| change.revision).max(),
        };
        let start = informers.clock().now();
        refresh(&domain, &informers, &zone);
        let times = (start, informers.clock().now());
        reporter.span(cause.unwrap_or(0), ("dns", "zone refreshed"), "", times, "");
    }
}

fn refresh(domain: &str, informers: &Informers, zone: &RwLock<Arc<Zone>>) {
    let services = informers.informer::<Service>().list();
    let slices = informers.informer::<EndpointSlice>().list();
    let fresh = Arc::new(Zone::build(domain, &services, &slices));
    *zone.write().unwrap_or_else(PoisonError::into_inner) = fresh;
}

struct Handler {
    zone: Arc<RwLock<Arc<Zone>>>,
    resolvers: Vec<SocketAddr>,
}

/// A response before it is put on the wire.
struct Response {
    code: ResponseCode,
    authoritative: bool,
    answers: Vec<WireRecord>,
    soa: Vec<WireRecord>,
    additionals: Vec<WireRecord>,
}

impl Response {
    fn empty(code: ResponseCode) -> Self {
        Self { code, authoritative: false, answers: Vec::new(), soa: Vec::new(), additionals: Vec::new() }
    }
}

#[async_trait::async_trait]
impl RequestHandler for Handler {
    async fn handle_request<R: ResponseHandler, T: Time>(
        &self,
        request: &Request,
        mut out: R,
    ) -> ResponseInfo {
        let response = self.respond(request).await;
        let mut metadata = Metadata::response_from_request(&request.metadata);
        metadata.response_code = response.code;
        metadata.authoritative = response.authoritative;
        metadata.recursion_available = true;
        let message = MessageResponseBuilder::from_message_request(request).build(
            metadata,
            response.answers.iter(),
            [].iter(),
            response.soa.iter(),
            response.additionals.iter(),
        );
        match out.send_response(message).await {
            Ok(info) => info,
            Err(error) => {
                tracing::debug!(%error, client = %request.src(), "an answer was not sent");
                hickory_proto::op::Header { metadata, counts: hickory_proto::op::HeaderCounts::default() }
                    .into()
            }
        }
    }
}

impl Handler {
    async fn respond(&self, request: &Request) -> Response {
        if request.metadata.op_code != OpCode::Query {
            return Response::empty(ResponseCode::NotImp);
        }
        let Ok(info) = request.request_info() else { return Response::empty(ResponseCode::FormErr) };
        let name = info.query.name().to_string();
        let name = name.trim_end_matches('.');
        let zone = self.zone.read().unwrap_or_else(PoisonError::into_inner).clone();
        let found = answer(&zone, name, query_type(info.query.query_type()));
        let (code, records, further) = match found {
            Answer::NotOurs => return self.forward(request).await,
            Answer::Records(records, further) => (ResponseCode::NoError, records, further),
            Answer::NoData => (ResponseCode::NoError, Vec::new(), Vec::new()),
            Answer::NoSuchName => (ResponseCode::NXDomain, Vec::new(), Vec::new()),
        };
        let mut answers: Vec<WireRecord> = records.iter().filter_map(wire).collect();
        let soa =
            if answers.is_empty() { start_of_authority(&zone).into_iter().collect() } else { Vec::new() };
        if let [Record { data: Data::Cname(target), .. }] = records.as_slice() {
            answers.extend(self.chase(target, info.query.query_type()).await);
        }
        let additionals = further.iter().filter_map(wire).collect();
        Response { code, authoritative: true, answers, soa, additionals }
    }

    async fn forward(&self, request: &Request) -> Response {
        if self.resolvers.is_empty() {
            return Response::empty(ResponseCode::Refused);
        }
        match forward::ask(&self.resolvers, request.as_slice()).await {
            None => Response::empty(ResponseCode::ServFail),
            Some(message) => Response {
                code: message.metadata.response_code,
                authoritative: false,
                answers: message.answers,
                soa: message.authorities,
                additionals: message.additionals,
            },
        }
    }

    /// The records of an ExternalName's target, so that clients need not ask again.
    async fn chase(&self, target: &str, record_type: RecordType) -> Vec<WireRecord> {
        if self.resolvers.is_empty() || record_type == RecordType::CNAME {
            return Vec::new();
        }
        let Ok(name) = Name::from_ascii(format!("{target}.")) else { return Vec::new() };
        let mut query = hickory_proto::op::Message::query();
        query.add_query(hickory_proto::op::Query::query(name, record_type));
        query.metadata.recursion_desired = true;
        let Ok(bytes) = query.to_vec() else { return Vec::new() };
        forward::ask(&self.resolvers, &bytes).await.map(|message| message.answers).unwrap_or_default()
    }
}

fn query_type(record_type: RecordType) -> QueryType {
    match record_type {
        RecordType::A => QueryType::A,
        RecordType::AAAA => QueryType::Aaaa,
        RecordType::SRV => QueryType::Srv,
        RecordType::PTR => QueryType::Ptr,
        RecordType::TXT => QueryType::Txt,
        RecordType::CNAME => QueryType::Cname,
        _ => QueryType::Other,
    }
}

/// `None` for a name that does not fit on the wire, which the API's validation keeps out.
fn wire(record: &Record) -> Option<WireRecord> {
    let name = |name: &str| Name::from_ascii(format!("{name}.")).ok();
    let data = match &record.data {
        Data::Address(std::net::IpAddr::V4(ip)) => RData::A(A(*ip)),
        Data::Address(std::net::IpAddr::V6(ip)) => RData::AAAA(AAAA(*ip)),
        Data::Srv { weight, port, target } => RData::SRV(SRV::new(0, *weight, *port, name(target)?)),
        Data::Ptr(target) => RData::PTR(PTR(name(target)?)),
        Data::Cname(target) => RData::CNAME(CNAME(name(target)?)),
        Data::Txt(text) => RData::TXT(TXT::new(vec![text.clone()])),
    };
    Some(WireRecord::from_rdata(name(&record.name)?, TTL_SECONDS, data))
}

/// What says how long a negative answer may be kept.
fn start_of_authority(zone: &Zone) -> Option<WireRecord> {
    let name = |name: String| Name::from_ascii(name).ok();
    let of = name(format!("{}.", zone.domain))?;
    let server = name(format!("ns.dns.{}.", zone.domain))?;
    let mailbox = name(format!("hostmaster.{}.", zone.domain))?;
    let soa = SOA::new(server, mailbox, 1, 7200, 1800, 86400, TTL_SECONDS);
    Some(WireRecord::from_rdata(of, TTL_SECONDS, RData::SOA(soa)))
}
