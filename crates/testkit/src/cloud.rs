//! A cloud that is played: instances with zones, load balancers, routes, behind the contract that providers answer.
//!
//! Whoever plays says which instances there are and in which mood the cloud is; what it was asked is written down.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use clouds::{Provider, Status, async_trait, v1};

/// The name that the cloud gives itself.
pub const NAME: &str = "example";

/// A machine of the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its id in the cloud.
    pub id: String,
    /// Its addresses, each with its type.
    pub addresses: Vec<(String, String)>,
    /// `true` if it is stopped.
    pub is_stopped: bool,
}

/// The manner in which the cloud answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// As asked.
    #[default]
    Well,
    /// It refuses to change anything.
    Refuses,
    /// It answers nothing at all.
    Hangs,
    /// It says what cannot be.
    Lies,
    /// It says more than anybody wants to know.
    Floods,
}

#[derive(Default)]
struct State {
    mood: Mood,
    /// By the Node's name.
    instances: BTreeMap<String, Instance>,
    /// By the Service: the address, and the Nodes behind it.
    balancers: BTreeMap<String, (Ipv4Addr, Vec<String>)>,
    given: u8,
    routes: Vec<v1::Route>,
    calls: Vec<String>,
}

/// The cloud; it ends with the tasks that it was started in. Cloning shares it.
#[derive(Clone, Default)]
pub struct PlayedCloud(Arc<Mutex<State>>);

impl PlayedCloud {
    /// Answers at `socket`, for everybody on this machine. To be called within a tokio runtime.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn listen(&self, socket: &Path, tasks: &base::Tasks) -> Result<()> {
        clouds::server::start(Arc::new(self.clone()), socket, tasks)
            .with_context(|| format!("listen on {}", socket.display()))?;
        std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666))?;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the cloud be in another mood.
    pub fn set_mood(&self, mood: Mood) {
        self.lock().mood = mood;
    }

    /// Makes or changes the machine of a Node.
    pub fn put(&self, node: &str, instance: Instance) {
        self.lock().instances.insert(node.to_owned(), instance);
    }

    /// Takes the machine of a Node away.
    pub fn remove(&self, node: &str) {
        self.lock().instances.remove(node);
    }

    /// The load balancers that there are: Service, address, names of Nodes.
    pub fn balancers(&self) -> Vec<String> {
        let state = self.lock();
        state
            .balancers
            .iter()
            .map(|(service, (address, nodes))| format!("{service} {address} {}", nodes.join(",")))
            .collect()
    }

    /// The routes that there are: range and Node.
    pub fn routes(&self) -> Vec<String> {
        let state = self.lock();
        state.routes.iter().map(|route| format!("{} {}", route.destination_cidr, route.target_node)).collect()
    }

    /// The number of times that a call came.
    pub fn count(&self, call: &str) -> usize {
        self.lock().calls.iter().filter(|known| *known == call).count()
    }

    /// Notes a call; says in which mood it is answered.
    async fn asked(&self, call: &str) -> Result<Mood, Status> {
        let mood = {
            let mut state = self.lock();
            state.calls.push(call.to_owned());
            state.mood
        };
        match mood {
            Mood::Hangs => std::future::pending().await,
            Mood::Refuses if call.starts_with("Ensure") || call.starts_with("Create") => {
                Err(Status::resource_exhausted("the quota of this account is used up"))
            }
            mood => Ok(mood),
        }
    }

    fn find(&self, node: Option<v1::Node>) -> Option<Instance> {
        let node = node?;
        let state = self.lock();
        let by_id = |one: &&Instance| format!("{NAME}://{}", one.id) == node.provider_id;
        let found = match node.provider_id.is_empty() {
            true => state.instances.get(&node.name),
            false => state.instances.values().find(by_id),
        };
        found.cloned()
    }

    fn balance(&self, service: Option<v1::Service>, nodes: &[v1::Node]) -> Ipv4Addr {
        let mut state = self.lock();
        let service = service.unwrap_or_default();
        let key = format!("{}/{}", service.namespace, service.name);
        state.given += u8::from(!state.balancers.contains_key(&key));
        let next = Ipv4Addr::new(203, 0, 113, state.given);
        let balancer = state.balancers.entry(key).or_insert((next, Vec::new()));
        balancer.1 = nodes.iter().map(|node| node.name.clone()).collect();
        balancer.0
    }
}

fn key_of(service: Option<v1::Service>) -> String {
    let service = service.unwrap_or_default();
    format!("{}/{}", service.namespace, service.name)
}

#[async_trait]
impl Provider for PlayedCloud {
    async fn get_capabilities(
        &self,
        _: v1::GetCapabilitiesRequest,
    ) -> Result<v1::GetCapabilitiesResponse, Status> {
        self.asked("GetCapabilities").await?;
        let provider_name = NAME.to_owned();
        Ok(v1::GetCapabilitiesResponse { provider_name, instances: true, load_balancers: true, routes: true })
    }

    async fn instance_exists(
        &self,
        asked: v1::InstanceRequest,
    ) -> Result<v1::InstanceExistsResponse, Status> {
        self.asked("InstanceExists").await?;
        Ok(v1::InstanceExistsResponse { exists: self.find(asked.node).is_some() })
    }

    async fn instance_shutdown(
        &self,
        asked: v1::InstanceRequest,
    ) -> Result<v1::InstanceShutdownResponse, Status> {
        self.asked("InstanceShutdown").await?;
        let found = self.find(asked.node).ok_or_else(|| Status::not_found("instance not found"))?;
        Ok(v1::InstanceShutdownResponse { shutdown: found.is_stopped })
    }

    async fn instance_metadata(
        &self,
        asked: v1::InstanceRequest,
    ) -> Result<v1::InstanceMetadataResponse, Status> {
        let mood = self.asked("InstanceMetadata").await?;
        let found = self.find(asked.node).ok_or_else(|| Status::not_found("instance not found"))?;
        let address = |(kind, address): (String, String)| v1::NodeAddress { r#type: kind, address };
        Ok(v1::InstanceMetadataResponse {
            provider_id: format!("{NAME}://{}", found.id),
            instance_type: "m1.small".to_owned(),
            zone: if mood == Mood::Lies { "no zone at all".to_owned() } else { "zone-a".to_owned() },
            region: if mood == Mood::Floods { "x".repeat(20 << 20) } else { "region-1".to_owned() },
            addresses: found.addresses.into_iter().map(address).collect(),
            additional_labels: BTreeMap::from([("example.com/rack".to_owned(), "7".to_owned())]),
        })
    }

    async fn get_load_balancer(
        &self,
        asked: v1::LoadBalancerRequest,
    ) -> Result<v1::GetLoadBalancerResponse, Status> {
        self.asked("GetLoadBalancer").await?;
        let exists = self.lock().balancers.contains_key(&key_of(asked.service));
        Ok(v1::GetLoadBalancerResponse { exists, status: None })
    }

    async fn ensure_load_balancer(
        &self,
        asked: v1::EnsureLoadBalancerRequest,
    ) -> Result<v1::EnsureLoadBalancerResponse, Status> {
        let mood = self.asked("EnsureLoadBalancer").await?;
        let ip = match mood {
            Mood::Lies => "everywhere".to_owned(),
            _ => self.balance(asked.service, &asked.nodes).to_string(),
        };
        let ingress = vec![v1::LoadBalancerIngress { ip, ..v1::LoadBalancerIngress::default() }];
        Ok(v1::EnsureLoadBalancerResponse { status: Some(v1::LoadBalancerStatus { ingress }) })
    }

    async fn update_load_balancer(
        &self,
        asked: v1::UpdateLoadBalancerRequest,
    ) -> Result<v1::UpdateLoadBalancerResponse, Status> {
        self.asked("UpdateLoadBalancer").await?;
        self.balance(asked.service, &asked.nodes);
        Ok(v1::UpdateLoadBalancerResponse {})
    }

    async fn ensure_load_balancer_deleted(
        &self,
        asked: v1::LoadBalancerRequest,
    ) -> Result<v1::EnsureLoadBalancerDeletedResponse, Status> {
        self.asked("EnsureLoadBalancerDeleted").await?;
        self.lock().balancers.remove(&key_of(asked.service));
        Ok(v1::EnsureLoadBalancerDeletedResponse {})
    }

    async fn list_routes(&self, _: v1::ListRoutesRequest) -> Result<v1::ListRoutesResponse, Status> {
        self.asked("ListRoutes").await?;
        Ok(v1::ListRoutesResponse { routes: self.lock().routes.clone() })
    }

    async fn create_route(&self, asked: v1::CreateRouteRequest) -> Result<v1::CreateRouteResponse, Status> {
        self.asked("CreateRoute").await?;
        let mut route = asked.route.unwrap_or_default();
        route.name = format!("route-{}", asked.name_hint);
        self.lock().routes.push(route);
        Ok(v1::CreateRouteResponse {})
    }

    async fn delete_route(&self, asked: v1::DeleteRouteRequest) -> Result<v1::DeleteRouteResponse, Status> {
        self.asked("DeleteRoute").await?;
        let gone = asked.route.unwrap_or_default();
        self.lock().routes.retain(|route| *route != gone);
        Ok(v1::DeleteRouteResponse {})
    }
}
