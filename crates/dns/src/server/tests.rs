use hickory_proto::rr::{Name, RData, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::answer::tests_zone;

async fn start(upstreams: Vec<SocketAddr>, zone: Option<Zone>) -> (SocketAddr, Tasks) {
    let (addresses, tasks) = start_at(&["127.0.0.1:0"], upstreams, zone).await;
    (addresses[0], tasks)
}

async fn start_at(bind: &[&str], upstreams: Vec<SocketAddr>, zone: Option<Zone>) -> (Vec<SocketAddr>, Tasks) {
    let config = Config {
        bind: bind.iter().map(|address| address.parse().unwrap()).collect(),
        domain: "cluster.local".into(),
        upstreams,
        reverse_cidrs: Vec::new(),
    };
    let tasks = Tasks::new();
    let current = Arc::new(RwLock::new(zone.map(Arc::new)));
    // The port that is free for one protocol may be somebody else's for the other.
    let mut tries = 20;
    let addresses = loop {
        tries -= 1;
        match serve(&config, Arc::clone(&current), &tasks).await {
            Err(_) if tries > 0 => {}
            done => break done.unwrap(),
        }
    };
    (addresses, tasks)
}

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

async fn ask_udp(server: SocketAddr, question: &Message) -> Message {
    let own = if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let socket = UdpSocket::bind(own).await.unwrap();
    socket.send_to(&question.to_vec().unwrap(), server).await.unwrap();
    let mut buffer = vec![0; 65_535];
    let length =
        tokio::time::timeout(Duration::from_secs(60), socket.recv(&mut buffer)).await.unwrap().unwrap();
    Message::from_vec(&buffer[..length]).unwrap()
}

async fn ask_tcp(server: SocketAddr, question: &Message) -> Message {
    let mut stream = TcpStream::connect(server).await.unwrap();
    let bytes = question.to_vec().unwrap();
    stream.write_all(&(bytes.len() as u16).to_be_bytes()).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    let mut bytes = vec![0; usize::from(stream.read_u16().await.unwrap())];
    stream.read_exact(&mut bytes).await.unwrap();
    Message::from_vec(&bytes).unwrap()
}

fn ips(message: &Message) -> Vec<String> {
    let mut ips: Vec<String> = message
        .answers
        .iter()
        .filter_map(|record| match &record.data {
            RData::A(ip) => Some(ip.to_string()),
            RData::AAAA(ip) => Some(ip.to_string()),
            _ => None,
        })
        .collect();
    ips.sort();
    ips
}

#[tokio::test]
async fn names_are_answered_over_udp_and_tcp_with_the_case_that_was_asked() {
    let (server, _tasks) = start(Vec::new(), Some(tests_zone())).await;
    let question = question("Web.default.svc.cluster.local.", RecordType::A);
    for answer in [ask_udp(server, &question).await, ask_tcp(server, &question).await] {
        assert_eq!(ips(&answer), ["10.43.0.5"]);
        assert_eq!(answer.answers[0].name.to_ascii(), "Web.default.svc.cluster.local.");
        assert!(answer.metadata.authoritative && answer.metadata.recursion_available);
    }
}

#[tokio::test]
async fn both_families_are_listened_at_and_forwarded_to() {
    let mut outside = Zone::new(&[], &[], "example.org", 1);
    outside.reverse_cidrs = Vec::new();
    let both = ["127.0.0.1:0", "[::1]:0"];
    let (upstreams, _upstream_tasks) = start_at(&both, Vec::new(), Some(outside)).await;
    let (servers, _tasks) = start_at(&both, vec![upstreams[1]], Some(tests_zone())).await;
    assert_eq!(servers.iter().map(SocketAddr::is_ipv6).collect::<Vec<_>>(), [false, true]);
    for server in servers {
        let dual = question("dual.default.svc.cluster.local.", RecordType::AAAA);
        for answer in [ask_udp(server, &dual).await, ask_tcp(server, &dual).await] {
            assert_eq!(ips(&answer), ["fd43::6"]);
        }
        let outside = question("2001-db8--7.x.pod.example.org.", RecordType::AAAA);
        assert_eq!(ips(&ask_udp(server, &outside).await), ["2001:db8::7"]);
    }
}

#[tokio::test]
async fn a_large_answer_is_cut_over_udp_and_whole_over_tcp() {
    let (server, _tasks) = start(Vec::new(), Some(tests_zone())).await;
    let question = question("many.default.svc.cluster.local.", RecordType::A);
    assert!(ask_udp(server, &question).await.metadata.truncation);
    assert_eq!(ips(&ask_tcp(server, &question).await).len(), 200);
}

#[tokio::test]
async fn other_names_are_forwarded_and_an_alias_is_followed() {
    // Another server plays the resolver outside.
    let mut outside = Zone::new(&[], &[], "example.org", 1);
    outside.reverse_cidrs = Vec::new();
    let (upstream, _upstream_tasks) = start(Vec::new(), Some(outside)).await;
    let (server, _tasks) = start(vec![upstream], Some(tests_zone())).await;
    let answer = ask_udp(server, &question("10-1-2-3.x.pod.example.org.", RecordType::A)).await;
    assert_eq!(ips(&answer), ["10.1.2.3"]);
    assert!(!answer.metadata.authoritative);
    let answer = ask_udp(server, &question("alias.default.svc.cluster.local.", RecordType::A)).await;
    assert_eq!(answer.answers[0].record_type(), RecordType::CNAME);
    assert_eq!(ips(&answer), ["10-7-7-7".replace('-', ".")]);
}

#[tokio::test]
async fn without_an_upstream_or_a_zone_the_answer_is_a_failure_at_once() {
    let (server, _tasks) = start(Vec::new(), Some(tests_zone())).await;
    let answer = ask_udp(server, &question("example.com.", RecordType::A)).await;
    assert_eq!(answer.metadata.response_code, ResponseCode::Refused);
    let (server, _tasks) = start(Vec::new(), None).await;
    let answer = ask_udp(server, &question("web.default.svc.cluster.local.", RecordType::A)).await;
    assert_eq!(answer.metadata.response_code, ResponseCode::ServFail);
}

#[tokio::test]
async fn an_address_that_is_not_here_is_named_in_the_error() {
    let config = Config {
        bind: vec!["192.0.2.77:53".parse().unwrap()],
        domain: "cluster.local".into(),
        upstreams: Vec::new(),
        reverse_cidrs: Vec::new(),
    };
    let error = serve(&config, Current::default(), &Tasks::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot listen for DNS on 192.0.2.77:53");
}
