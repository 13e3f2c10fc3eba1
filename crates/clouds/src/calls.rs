//! Every call of the contract: its name on the wire, its method, its messages, how long it may take in seconds. A row per call;
//! trait, client and server are made of them.

macro_rules! calls {
    ($then:ident) => {
        $then! {
            "GetCapabilities" get_capabilities GetCapabilitiesRequest GetCapabilitiesResponse 10;
            "InstanceExists" instance_exists InstanceRequest InstanceExistsResponse 30;
            "InstanceShutdown" instance_shutdown InstanceRequest InstanceShutdownResponse 30;
            "InstanceMetadata" instance_metadata InstanceRequest InstanceMetadataResponse 30;
            "GetLoadBalancer" get_load_balancer LoadBalancerRequest GetLoadBalancerResponse 30;
            "EnsureLoadBalancer" ensure_load_balancer EnsureLoadBalancerRequest EnsureLoadBalancerResponse 120;
            "UpdateLoadBalancer" update_load_balancer UpdateLoadBalancerRequest UpdateLoadBalancerResponse 120;
            "EnsureLoadBalancerDeleted" ensure_load_balancer_deleted LoadBalancerRequest
                EnsureLoadBalancerDeletedResponse 120;
            "ListRoutes" list_routes ListRoutesRequest ListRoutesResponse 30;
            "CreateRoute" create_route CreateRouteRequest CreateRouteResponse 30;
            "DeleteRoute" delete_route DeleteRouteRequest DeleteRouteResponse 30;
        }
    };
}

pub(crate) use calls;
