// Has Apache Kafka's own StandardAuthorizer judge cases: a JSON list in, a JSON list of booleans out.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

public class Judge {
    static final Metrics METRICS = new Metrics();

    record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 1; }
        public int requestVersion() { return 1; }
        public String clientId() { return "judge"; }
        public int correlationId() { return 0; }
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        List<Boolean> allowed = new ArrayList<>();
        for (JsonNode found : mapper.readTree(System.in)) allowed.add(isAllowed(found));
        System.out.println(mapper.writeValueAsString(allowed));
    }

    static boolean isAllowed(JsonNode asked) throws Exception {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.withPluginMetrics(new PluginMetricsImpl(METRICS, Map.of("case", Uuid.randomUuid().toString())));
        authorizer.configure(Map.of(
            StandardAuthorizer.SUPER_USERS_CONFIG, asked.get("super_users").asText(),
            StandardAuthorizer.ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG, asked.get("allows_everyone_without_acl").asText()));
        Map<Uuid, StandardAcl> acls = new HashMap<>();
        for (JsonNode line : asked.get("acls")) {
            String[] parts = line.asText().split(" ");
            acls.put(Uuid.randomUuid(), new StandardAcl(ResourceType.valueOf(parts[4]), parts[6], PatternType.valueOf(parts[5]),
                parts[1], parts[2], AclOperation.valueOf(parts[3]), AclPermissionType.valueOf(parts[0])));
        }
        authorizer.loadSnapshot(acls);
        authorizer.completeInitialLoad();
        String[] principal = asked.get("principal").asText().split(":", 2);
        Context context = new Context(
            new KafkaPrincipal(principal[0], principal[1]), InetAddress.getByName(asked.get("host").asText()));
        AclOperation operation = AclOperation.valueOf(asked.get("operation").asText());
        ResourceType type = ResourceType.valueOf(asked.get("resource_type").asText());
        String name = asked.get("name").asText();
        AuthorizationResult result = name.equals("?")
            ? authorizer.authorizeByResourceType(context, operation, type)
            : authorizer.authorize(context, List.of(
                new Action(operation, new ResourcePattern(type, name, PatternType.LITERAL), 1, true, true))).get(0);
        authorizer.close();
        return result == AuthorizationResult.ALLOWED;
    }
}
